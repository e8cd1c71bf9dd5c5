// 3. One place in a text: five tokens, two distributions to drag, and what acceptance and the residual make of them.

const TOKENS = ["cat", "dog", "fox", "owl", "bee"];
const START = { p: [0.4, 0.25, 0.2, 0.1, 0.05], q: [0.15, 0.5, 0.1, 0.2, 0.05] };
const NAMES = { p: "p_target", q: "q_draft" };
let dists = { p: [...START.p], q: [...START.q] };

// What the rule of speculate.py does at one place. beta: how often the draft token is accepted.
// Where q_draft = p_target nothing is left, and nothing is rejected: then the residual is p_target, as in probs.py.
function verifyToken(p, q, mistaken) {
  const accept = p.map((prob, i) => Math.min(prob, q[i]));
  const left = p.map((prob, i) => Math.max(0, prob - q[i])), total = sum(left);
  const beta = sum(accept), residual = mistaken || total < 1e-12 ? p : left.map((part) => part / total);
  const replaced = residual.map((prob) => (1 - beta) * prob);
  return { accept, beta, residual, replaced, output: accept.map((part, i) => part + replaced[i]) };
}

// One bar is set; the others share what it leaves, in the proportions that they had, or evenly if they were all 0.
function setBar(dist, index, value) {
  const chosen = Math.max(0, Math.min(1, value)), others = sum(dist) - dist[index];
  return dist.map((prob, i) => i === index ? chosen
    : others > 1e-9 ? prob / others * (1 - chosen) : (1 - chosen) / (dist.length - 1));
}

// A chart of bars, a column for each token. parts: classes of what is stacked in a column, from below.
function makeChart(id, parts) {
  const columns = TOKENS.map((token) => {
    const column = make("div", "column"), well = make("div", "well"), value = make("span", "number");
    const pieces = parts.map((part) => make("div", "piece " + part));
    well.append(...pieces);
    column.append(value, well, make("span", "name", token));
    return { column, well, value, pieces };
  });
  byId(id).replaceChildren(...columns.map(({ column }) => column));
  return columns;
}

function setColumn({ value, pieces }, heights) {
  let below = 0;
  pieces.forEach((piece, i) => {
    place(piece, { bottom: below, height: heights[i] });
    below += heights[i];
  });
  value.textContent = fixed(below);
}

// A column that can be dragged, or moved by the keys that a slider has.
function makeSlider({ well }, which, index) {
  well.classList.add("handle");
  well.tabIndex = 0;
  well.setAttribute("role", "slider");
  well.setAttribute("aria-orientation", "vertical");
  well.setAttribute("aria-label", `${NAMES[which]} of ${TOKENS[index]}`);
  well.setAttribute("aria-valuemin", 0);
  well.setAttribute("aria-valuemax", 1);
  const set = (value) => {
    dists[which] = setBar(dists[which], index, value);
    showExact();
  };
  const drag = (event) => {
    const box = well.getBoundingClientRect();
    set((box.bottom - event.clientY) / box.height);
  };
  well.addEventListener("pointerdown", (event) => {
    well.setPointerCapture(event.pointerId);
    well.focus();
    event.preventDefault();
    drag(event);
  });
  well.addEventListener("pointermove", (event) => {
    if (well.hasPointerCapture(event.pointerId)) drag(event);
  });
  const steps = { ArrowUp: 0.01, ArrowRight: 0.01, ArrowDown: -0.01, ArrowLeft: -0.01, PageUp: 0.1, PageDown: -0.1,
    Home: -1, End: 1 };
  well.addEventListener("keydown", (event) => {
    if (!(event.key in steps)) return;
    event.preventDefault();
    set(dists[which][index] + steps[event.key]);
  });
}

function showExact() {
  const mistaken = byId("mistake").checked, found = verifyToken(dists.p, dists.q, mistaken), { p, q } = dists;
  for (const which of ["p", "q"]) {
    CHARTS[which].forEach((column, i) => {
      setColumn(column, [dists[which][i]]);
      column.well.setAttribute("aria-valuenow", fixed(dists[which][i]));
    });
  }
  const rejected = 1 - found.beta, off = sum(p.map((prob, i) => Math.abs(prob - found.output[i]))) / 2;
  CHARTS.accept.forEach((column, i) => setColumn(column, [found.accept[i]]));
  CHARTS.left.forEach((column, i) => setColumn(column, [found.residual[i]]));
  CHARTS.output.forEach((column, i) => {
    setColumn(column, [found.accept[i], found.replaced[i]]);
    place(column.line, { bottom: p[i] });
  });
  byId("left-note").textContent = mistaken ? "p_target, by mistake"
    : rejected < 1e-9 ? "nothing is left, and nothing is rejected" : "max(0, p_target − q_draft) over its sum";
  byId("output-note").textContent = `accepted + ${fixed(rejected)} · ${mistaken ? "p_target" : "residual"}; ` +
    "the line is p_target";
  for (const [id, name, probs] of [["accept-bars", "Drafted and accepted", found.accept],
    ["left-bars", "Residual", found.residual], ["output-bars", "Output", found.output]]) {
    const said = TOKENS.map((token, i) => `${token} ${fixed(probs[i])}`);
    byId(id).setAttribute("aria-label", `${name}: ${said.join(", ")}`);
  }
  byId("proof").classList.toggle("wrong", off > 0.0005);
  say("proof", `The draft token is accepted with probability beta = ${fixed(found.beta)}, and replaced with ` +
    `probability ${fixed(rejected)}. ` + (off > 0.0005
    ? `The output is ${fixed(off, 3)} away from p_target, in total variation: this text would not be the target's.`
    : "The output is p_target: " + TOKENS.map((_, i) => fixed(found.output[i])).join(", ") + "."));
}

function startAgain() {
  dists = { p: [...START.p], q: [...START.q] };
  byId("mistake").checked = false;
  showExact();
}

const CHARTS = { p: makeChart("p-bars", ["p_target"]), q: makeChart("q-bars", ["q_draft"]),
  accept: makeChart("accept-bars", ["accepted"]), left: makeChart("left-bars", ["residual"]),
  output: makeChart("output-bars", ["accepted", "residual"]) };
for (const which of ["p", "q"]) CHARTS[which].forEach((column, i) => makeSlider(column, which, i));
for (const column of CHARTS.output) column.well.append(column.line = make("div", "line"));
byId("again").addEventListener("click", startAgain);
byId("alike").addEventListener("click", () => {
  dists.q = [...dists.p];
  showExact();
});
byId("mistake").addEventListener("change", showExact);
startAgain();
