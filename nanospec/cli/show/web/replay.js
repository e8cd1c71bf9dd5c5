// 1. The run: what happened in each round, from its own numbers. Nothing is built before its round is shown.

const PAUSE = 900, PAUSE_FOR_A_COIN = 350;      // milliseconds that a round stays while the replay plays
const ROUNDS_IN_TIME = 8;                       // on the lanes at once
let now = 0;                                    // the round that is shown, from 0
const LAST = -1;                                // the replacement or bonus token, in the place of a node
let chosen = LAST;                              // the node whose bars are shown
let playing = null;                             // the timer of the next round

const nameOf = (token) => RUN.names[token];
const tokenOf = (round, node) => round.tokens[node] ?? round.last.token;
const isTree = (round) => round.parents.some((parent, node) => parent !== node - 1);
const isAccepted = (round, node) => round.path.includes(node);
const lastAccepted = (round) => round.path.length ? round.path[round.path.length - 1] : 0;
const rejectedNodes = (round) => Object.keys(round.judged).map(Number).filter((node) => !isAccepted(round, node));
// The tokens in whose place the last one stands: of a tree, all children of the last accepted node.
const replacedNodes = (round) => rejectedNodes(round).filter((node) => round.parents[node] === lastAccepted(round));
const lastKind = (round) => replacedNodes(round).length ? "replacement" : "bonus";

function kindOf(round, node) {
  if (node === LAST) return lastKind(round);
  if (!round.judged[node]) return "unjudged";
  return isAccepted(round, node) ? "accepted" : "rejected";
}

// Where the round was decided: the last node that was rejected, or else LAST.
function decisive(round) {
  const nodes = replacedNodes(round);
  return nodes.length ? nodes[nodes.length - 1] : LAST;
}

function showRound(number) {
  now = Math.max(0, Math.min(RUN.rounds.length - 1, number));
  const round = RUN.rounds[now];
  chosen = decisive(round);
  byId("round").value = now + 1;
  byId("round").setAttribute("aria-valuetext", `round ${now + 1} of ${RUN.rounds.length}`);
  byId("place").textContent = `${now + 1} of ${RUN.rounds.length}`;
  byId("back").setAttribute("aria-disabled", now === 0);       // a button that is disabled would lose the focus
  byId("next").setAttribute("aria-disabled", now === RUN.rounds.length - 1);
  say("said", sentence(round, now + 1));
  showText();
  showCounts();
  showNodes(round);
  showBars(round);
  showLanes();
}

// The round in words, for those who listen and those who read.
function sentence(round, number) {
  const drafted = round.parents.filter((parent) => parent >= 0).length;
  const words = [`Round ${number}: ${count(drafted, "draft token")}, ${round.path.length} accepted.`];
  for (const node of replacedNodes(round)) {
    const { u, threshold } = round.judged[node], name = nameOf(round.tokens[node]);
    words.push(`“${name}” is rejected: its coin ${fixed(u)} is not below ${fixed(threshold)}.`);
  }
  const last = nameOf(round.last.token);
  words.push(lastKind(round) === "bonus" ? `The bonus token is “${last}”.` : `The replacement is “${last}”.`);
  if (round.written <= round.path.length) words.push("It is not written: the text ends before it.");
  return words.join(" ");
}

// The text up to this round. Rounds are added and removed at the end, so a step costs what one round costs.
function showText() {
  const text = byId("text");
  if (!text.firstChild) text.append(make("span", "prompt", RUN.prompt));
  while (text.children.length > now + 2) text.lastChild.remove();
  text.querySelector(".now")?.classList.remove("now");
  while (text.children.length < now + 2) text.append(textOf(RUN.rounds[text.children.length - 1]));
  text.lastChild.classList.add("now");
  text.scrollTop = text.lastChild.offsetTop - text.clientHeight / 2;
}

function textOf(round) {
  const out = make("span", "round");
  if (round.text[0]) out.append(make("span", "accepted", round.text[0]));
  if (!round.text[1]) return out;
  for (const node of replacedNodes(round)) out.append(make("del", "rejected", nameOf(round.tokens[node])));
  out.append(make("span", lastKind(round), round.text[1]));
  return out;
}

function showCounts() {
  const rounds = RUN.rounds.slice(0, now + 1);
  const written = sum(rounds.map((round) => round.written));
  const accepted = sum(rounds.map((round) => round.path.length));
  const drafted = sum(rounds.map((round) => round.parents.filter((parent) => parent >= 0).length));
  const facts = [["tokens written", written], ["target calls", rounds.length],
    ["tokens per target call", fixed(written / rounds.length)], ["draft tokens accepted", `${accepted} of ${drafted}`]];
  byId("counts").replaceChildren(...facts.map(([name, value]) => {
    const fact = make("div");
    fact.append(make("dt", "", name), make("dd", "", value));
    return fact;
  }));
}

// Draft tokens in the order in which they were judged; of a tree, children in a list of their own under their parent.
function showNodes(round) {
  const root = byId("nodes"), lists = new Map([[0, root]]), tree = isTree(round);
  root.classList.toggle("tree", tree);
  root.replaceChildren();
  function add(node, list) {
    const item = make("li");
    item.append(nodeButton(round, node));
    list.append(item);
    return item;
  }
  function listBehind(node) {
    if (!tree) return root;
    if (!lists.has(node)) {
      const list = make("ol");
      items.get(node).append(list);
      lists.set(node, list);
    }
    return lists.get(node);
  }
  const items = new Map();
  round.parents.forEach((parent, node) => {
    if (parent >= 0) items.set(node, add(node, listBehind(parent)));
  });
  add(LAST, listBehind(lastAccepted(round)));
  root.querySelectorAll("button").forEach((button, i) => button.style.setProperty("--turn", i));
}

// A draft token with its coin, as a button that shows its bars. The last button is of the replacement or bonus token.
function nodeButton(round, node) {
  const kind = kindOf(round, node), button = make("button", "node " + kind), judged = round.judged[node];
  button.type = "button";
  button.dataset.node = node;
  button.append(make("code", "token " + kind, nameOf(tokenOf(round, node))), " ");
  if (judged) button.append(gauge(judged), " ");
  button.append(make("span", "outcome", outcome(round, node)));
  button.disabled = kind === "unjudged";
  button.setAttribute("aria-pressed", node === chosen);
  button.addEventListener("click", () => choose(node));
  return button;
}

function outcome(round, node) {
  const kind = kindOf(round, node);
  if (kind === "unjudged") return "never judged";
  if (kind === "bonus") return "bonus, drawn from p_target";
  if (kind === "replacement") return "replacement, drawn from the residual";
  const { u, threshold } = round.judged[node];
  return `coin ${fixed(u)} ${kind === "accepted" ? "<" : "≥"} ${fixed(threshold)} ${kind}`;
}

function gauge({ u, threshold }) {
  const out = make("span", "gauge");
  out.setAttribute("aria-hidden", "true");                      // its numbers are said beside it
  out.append(place(make("span", "below"), { width: threshold }), place(make("span", "coin"), { left: u }));
  return out;
}

function choose(node) {
  chosen = node;
  for (const button of byId("nodes").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", Number(button.dataset.node) === node);
  }
  showBars(RUN.rounds[now]);
}

// The distributions at the chosen node, or those of the last token: likeliest tokens first, and all the others as one.
function showBars(round) {
  const { bars } = round.judged[chosen] ?? round.last, kind = kindOf(round, chosen);
  const columns = columnsOf(round, kind);
  byId("bars-title").textContent = `What “${nameOf(tokenOf(round, chosen))}” was ` +
    (chosen === LAST ? "drawn from" : "judged by");
  byId("bars-note").textContent = explanation(round, kind, bars);
  const head = make("tr");
  for (const name of ["", ...columns]) {
    const cell = make("th", name.split(" ")[0], name || "token");
    cell.scope = "col";
    head.append(cell);
  }
  byId("bars-head").replaceChildren(head);
  const others = columns.map((_, i) => Math.max(0, 1 - sum(bars.map((bar) => bar[i + 1]))));
  const rest = RUN.vocabulary - bars.length;
  byId("bars").replaceChildren(
    ...bars.map(([token, ...probs]) => barLine(nameOf(token), markOf(round, token), columns, probs)),
    ...(rest ? [barLine(`${rest.toLocaleString("en")} others`, null, columns, others)] : []));
}

function columnsOf(round, kind) {
  if (kind === "bonus") return ["p_target"];
  if (kind === "replacement") return ["residual"];
  const elder = round.parents.indexOf(round.parents[chosen]) !== chosen;    // a sibling was rejected before it
  return [elder ? "p_target left" : "p_target", "q_draft", ...(kind === "rejected" ? ["residual"] : [])];
}

function markOf(round, token) {
  if (token === round.tokens[chosen]) return kindOf(round, chosen);
  const drawnHere = chosen === LAST || replacedNodes(round).includes(chosen);
  return drawnHere && token === round.last.token ? lastKind(round) : "";
}

function explanation(round, kind, bars) {
  if (kind === "bonus") return "Every draft token was accepted. The target has scored this place too, so the bonus costs no call.";
  if (kind === "replacement") return "Drawn from the residual distribution: max(0, p_target − q_draft) over its sum.";
  const [, p, q] = bars.find(([token]) => token === round.tokens[chosen]), { u, threshold } = round.judged[chosen];
  const elder = columnsOf(round, kind)[0] === "p_target left"
    ? " p_target left is the residual after its elder siblings, which were rejected before it." : "";
  return `Threshold: ${fixed(p, 3)} / ${fixed(q, 3)}, at most 1, is ${fixed(threshold, 3)}. The coin fell on ` +
    `${fixed(u, 3)}: ${kind}.${elder}`;
}

function barLine(name, mark, columns, probs) {
  const line = make("tr"), head = make("th");
  head.scope = "row";
  head.append(mark === null ? make("span", "note", name) : make("code", "token " + mark, name));
  line.append(head);
  probs.forEach((prob, i) => {
    const cell = make("td"), track = make("span", "track");
    track.append(place(make("span", "bar " + columns[i].split(" ")[0]), { width: prob }));
    cell.append(make("span", "number", fixed(prob, 3)), track);
    line.append(cell);
  });
  return line;
}

// Some rounds on one axis of time: drafting, then a call of the target; and what the target alone did meanwhile.
// The first round is left out, and so is the first token of plain decoding: they read the prompt, too.
function showLanes() {
  const before = Math.max(0, now - 1), first = 1 + before - before % ROUNDS_IN_TIME;
  const rounds = RUN.rounds.slice(first, first + ROUNDS_IN_TIME), span = sum(rounds.flatMap((round) => round.ms));
  const ahead = lane("drafting"), target = lane("target"), alone = lane("target alone");
  let at = 0;
  rounds.forEach((round, i) => {
    const when = first + i === now ? " now" : first + i > now ? " later" : "";
    const [drafting, rest] = round.ms;
    for (let step = 0; step < round.steps && drafting; step++) {
      segment(ahead, at + drafting * step / round.steps, drafting / round.steps, "q_draft" + when, "");
    }
    if (!round.steps && drafting) segment(ahead, at, drafting, "q_draft" + when, "");       // no model: a search
    segment(target, at + drafting, rest, "p_target" + when, `+${round.written}`);
    at += drafting + rest;
  });
  const plain = plainMeanwhile(span);
  plain.forEach(([start, took]) => segment(alone, start, took, "plain", ""));
  byId("lanes").replaceChildren(ahead.element, target.element, alone.element);
  const tokens = sum(rounds.map((round) => round.written));
  const words = !rounds.length ? "Nothing to compare: this run is one round, which reads the prompt, too."
    : `Rounds ${first + 1} to ${first + rounds.length}, ${fixed(span, 0)} ms: ${count(tokens, "token")}. ` +
    `The target alone writes ${plain.length} in this time.` +
    (now ? "" : " Round 1 reads the prompt, too, and is left out.");
  byId("lanes").setAttribute("aria-label", words);
  byId("lanes-note").textContent = words;

  function segment(lane, start, took, className, label) {
    lane.track.append(place(make("span", "segment " + className, label), { left: start / span, width: took / span }));
  }
}

function lane(name) {
  const element = make("div", "lane"), track = make("div", "track");
  element.append(make("span", "name", name), track);
  return { element, track };
}

// [start, milliseconds] of the first steps of plain decoding that fit into a time.
function plainMeanwhile(span) {
  const steps = [];
  let at = 0;
  for (const took of RUN.plain.slice(1)) {
    if (at + took > span) break;
    steps.push([at, took]);
    at += took;
  }
  return steps;
}

function play() {
  if (now === RUN.rounds.length - 1) showRound(0);
  byId("play").textContent = "Pause";
  const turn = () => {
    const coins = Object.keys(RUN.rounds[now].judged).length;
    playing = setTimeout(() => {
      showRound(now + 1);
      if (now === RUN.rounds.length - 1) pause();
      else turn();
    }, PAUSE + PAUSE_FOR_A_COIN * coins);
  };
  turn();
}

function pause() {
  clearTimeout(playing);
  playing = null;
  byId("play").textContent = "Play";
}

function step(by) {
  pause();
  showRound(now + by);
}

byId("round").max = RUN.rounds.length;
byId("back").addEventListener("click", () => step(-1));
byId("next").addEventListener("click", () => step(1));
byId("play").addEventListener("click", () => (playing === null ? play() : pause()));
byId("round").addEventListener("input", (event) => step(Number(event.target.value) - 1 - now));
showRound(0);
