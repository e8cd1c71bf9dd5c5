// 1. The run: what happened in each round, from its own numbers. Nothing is built before its round is shown.

const PAUSE = 900, PAUSE_FOR_A_COIN = 350;      // milliseconds that a round stays while the replay plays
const ROUNDS_IN_TIME = 8;                       // on the lanes at once
let now = 0;                                    // the round that is shown, from 0
let chosen = 0;                                 // the row whose bars are shown; 0 is the replacement or bonus token
let playing = null;                             // the timer of the next round

const nameOf = (token) => RUN.names[token];
const isTree = (round) => round.parents.some((parent, row) => parent !== row - 1);
const isAccepted = (round, row) => round.path.includes(row);
const lastAccepted = (round) => round.path.length ? round.path[round.path.length - 1] : 0;
const rejectedRows = (round) => Object.keys(round.judged).map(Number).filter((row) => !isAccepted(round, row));
// The tokens in whose place the last one stands: of a tree, all children of the last accepted row.
const replacedRows = (round) => rejectedRows(round).filter((row) => round.parents[row] === lastAccepted(round));
const lastKind = (round) => replacedRows(round).length ? "replacement" : "bonus";

function kindOf(round, row) {
  if (row === 0) return lastKind(round);
  if (!round.judged[row]) return "unjudged";
  return isAccepted(round, row) ? "accepted" : "rejected";
}

// Where the round was decided: the last row that was rejected, or else the bonus token.
function decisive(round) {
  const rows = replacedRows(round);
  return rows.length ? rows[rows.length - 1] : 0;
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
  showRows(round);
  showBars(round);
  showLanes();
}

// The round in words, for those who listen and those who read.
function sentence(round, number) {
  const drafted = round.parents.filter((parent) => parent >= 0).length;
  const words = [`Round ${number}: ${count(drafted, "draft token")}, ${round.path.length} accepted.`];
  for (const row of replacedRows(round)) {
    const { u, threshold } = round.judged[row], name = nameOf(round.tokens[row]);
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
  for (const row of replacedRows(round)) out.append(make("del", "rejected", nameOf(round.tokens[row])));
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
function showRows(round) {
  const root = byId("rows"), lists = new Map([[0, root]]), tree = isTree(round);
  root.classList.toggle("tree", tree);
  root.replaceChildren();
  function add(row, list) {
    const item = make("li");
    item.append(rowButton(round, row));
    list.append(item);
    return item;
  }
  function listBehind(row) {
    if (!tree) return root;
    if (!lists.has(row)) {
      const list = make("ol");
      items.get(row).append(list);
      lists.set(row, list);
    }
    return lists.get(row);
  }
  const items = new Map();
  round.parents.forEach((parent, row) => {
    if (row && parent >= 0) items.set(row, add(row, listBehind(parent)));
  });
  add(0, listBehind(lastAccepted(round)));
  root.querySelectorAll("button").forEach((button, i) => button.style.setProperty("--turn", i));
}

// A draft token with its coin, as a button that shows its bars. Row 0 stands for the replacement or bonus token.
function rowButton(round, row) {
  const kind = kindOf(round, row), button = make("button", "row " + kind), judged = round.judged[row];
  button.type = "button";
  button.dataset.row = row;
  button.append(make("code", "token " + kind, nameOf(row ? round.tokens[row] : round.last.token)), " ");
  if (judged) button.append(gauge(judged), " ");
  button.append(make("span", "outcome", outcome(round, row)));
  button.disabled = kind === "unjudged";
  button.setAttribute("aria-pressed", row === chosen);
  button.addEventListener("click", () => choose(row));
  return button;
}

function outcome(round, row) {
  const kind = kindOf(round, row);
  if (kind === "unjudged") return "never judged";
  if (kind === "bonus") return "bonus, drawn from p_target";
  if (kind === "replacement") return "replacement, drawn from the residual";
  const { u, threshold } = round.judged[row];
  return `coin ${fixed(u)} ${kind === "accepted" ? "<" : "≥"} ${fixed(threshold)} ${kind}`;
}

function gauge({ u, threshold }) {
  const out = make("span", "gauge");
  out.setAttribute("aria-hidden", "true");                      // its numbers are said beside it
  out.append(place(make("span", "below"), { width: threshold }), place(make("span", "coin"), { left: u }));
  return out;
}

function choose(row) {
  chosen = row;
  for (const button of byId("rows").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", Number(button.dataset.row) === row);
  }
  showBars(RUN.rounds[now]);
}

// The distributions at the chosen row: likeliest tokens first, and all the others as one.
function showBars(round) {
  const { bars } = chosen ? round.judged[chosen] : round.last, kind = kindOf(round, chosen);
  const columns = columnsOf(round, kind);
  byId("bars-title").textContent = `What “${nameOf(chosen ? round.tokens[chosen] : round.last.token)}” was ` +
    (chosen ? "judged by" : "drawn from");
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
    ...bars.map(([token, ...probs]) => barRow(nameOf(token), markOf(round, token), columns, probs)),
    ...(rest ? [barRow(`${rest.toLocaleString("en")} others`, null, columns, others)] : []));
}

function columnsOf(round, kind) {
  if (kind === "bonus") return ["p_target"];
  if (kind === "replacement") return ["residual"];
  const elder = round.parents.indexOf(round.parents[chosen]) !== chosen;    // a sibling was rejected before it
  return [elder ? "p_target left" : "p_target", "q_draft", ...(kind === "rejected" ? ["residual"] : [])];
}

function markOf(round, token) {
  if (chosen && token === round.tokens[chosen]) return kindOf(round, chosen);
  const drawnHere = chosen === 0 || replacedRows(round).includes(chosen);
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

function barRow(name, mark, columns, probs) {
  const row = make("tr"), head = make("th");
  head.scope = "row";
  head.append(mark === null ? make("span", "note", name) : make("code", "token " + mark, name));
  row.append(head);
  probs.forEach((prob, i) => {
    const cell = make("td"), track = make("span", "track");
    track.append(place(make("span", "bar " + columns[i].split(" ")[0]), { width: prob }));
    cell.append(make("span", "number", fixed(prob, 3)), track);
    row.append(cell);
  });
  return row;
}

// Some rounds on one axis of time: drafting, then a call of the target; and what the target alone did meanwhile.
// The first round is left out, and so is the first token of plain decoding: they read the prompt, too.
function showLanes() {
  const before = Math.max(0, now - 1), first = 1 + before - before % ROUNDS_IN_TIME;
  const rounds = RUN.rounds.slice(first, first + ROUNDS_IN_TIME), span = sum(rounds.flatMap((round) => round.ms));
  const draft = lane("draft"), target = lane("target"), alone = lane("target alone");
  let at = 0;
  rounds.forEach((round, i) => {
    const when = first + i === now ? " now" : first + i > now ? " later" : "";
    const [drafting, rest] = round.ms;
    for (let step = 0; step < round.steps && drafting; step++) {
      segment(draft, at + drafting * step / round.steps, drafting / round.steps, "q_draft" + when, "");
    }
    if (!round.steps && drafting) segment(draft, at, drafting, "q_draft" + when, "");       // no model: a search
    segment(target, at + drafting, rest, "p_target" + when, `+${round.written}`);
    at += drafting + rest;
  });
  const plain = plainMeanwhile(span);
  plain.forEach(([start, took]) => segment(alone, start, took, "plain", ""));
  byId("lanes").replaceChildren(draft.row, target.row, alone.row);
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
  const row = make("div", "lane"), track = make("div", "track");
  row.append(make("span", "name", name), track);
  return { row, track };
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
