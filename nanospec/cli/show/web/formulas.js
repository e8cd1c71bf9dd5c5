// 2. The formulas of nanospec/theory.py, with sliders, and this run's measured point beside them.

const SLIDERS = ["alpha", "gamma", "c", "v"];
const BOX = { left: 44, right: 424, top: 14, bottom: 240 };     // of a chart, in its own units

// Tokens per target call, Eq. 1: (1 - alpha^(gamma + 1)) / (1 - alpha), as a sum, which holds at alpha = 1, too.
function expectedTokens(alpha, gamma) {
  let tokens = 0;
  for (let i = 0; i <= gamma; i++) tokens += alpha ** i;
  return tokens;
}

// Plain seconds / speculative seconds.
function speedUp(alpha, gamma, c, v) {
  return expectedTokens(alpha, gamma) / (gamma * c + v);
}

// v of a draft of any length, if every further token adds the same: it is v at the slider's gamma.
function costOfCall(tokens, gamma, v) {
  return 1 + (v - 1) * (tokens - 1) / gamma;
}

function bestGamma(alpha, gamma, c, v, most) {
  let best = 1;
  const gain = (length) => speedUp(alpha, length, c, costOfCall(length + 1, gamma, v));
  for (let length = 2; length <= most; length++) if (gain(length) > gain(best)) best = length;
  return best;
}

function values() {
  return SLIDERS.map((name) => Number(byId(name).value));
}

// The run's own numbers, on sliders that reach so far. A gamma of 40 or a v of 6 is possible.
function asMeasured() {
  for (const name of SLIDERS) {
    const slider = byId(name);
    slider.max = Math.max(slider.max, Math.ceil(RUN.numbers[name]));
    slider.min = Math.min(slider.min, RUN.numbers[name]);
    slider.step = name === "gamma" ? 1 : "any";                 // first the number as it was measured
    slider.value = RUN.numbers[name];
  }
  showFormulas();
}

function showFormulas() {
  const [alpha, gamma, c, v] = values();
  for (const name of SLIDERS) {
    const text = fixed(Number(byId(name).value), name === "gamma" ? 0 : 2);
    document.querySelector(`output[for="${name}"]`).textContent = text;
  }
  const tokens = expectedTokens(alpha, gamma), gain = speedUp(alpha, gamma, c, v);
  byId("expected").textContent = fixed(tokens);
  byId("speedup").textContent = fixed(gain);
  const best = bestGamma(alpha, gamma, c, v, Number(byId("gamma").max));
  say("verdict", `A round costs as much as ${fixed(gamma * c + v)} tokens of the target alone and brings ` +
    `${fixed(tokens)}: speculation ${gain > 1 ? "wins" : "loses"}. The best gamma here is ${best}.`);
  drawByAlpha(alpha, gamma, c, v);
  drawByGamma(alpha, gamma, c, v, best);
}

function drawByAlpha(alpha, gamma, c, v) {
  const found = RUN.numbers, alphas = Array.from({ length: 101 }, (_, i) => i / 100);
  const tokens = alphas.map((x) => [x, expectedTokens(x, gamma)]);
  const gains = alphas.map((x) => [x, speedUp(x, gamma, c, v)]);
  const top = 1.06 * Math.max(2, found.speedup, found.acceptance_length, ...tokens.map(([, y]) => y));
  const at = scale(0, 1, top), picture = blank("by-alpha", at, [0, 0.2, 0.4, 0.6, 0.8, 1], top, "alpha");
  picture.append(curve(at, tokens, "tokens"), curve(at, gains, "speed"));
  point(picture, at, alpha, expectedTokens(alpha, gamma), "tokens");
  point(picture, at, alpha, speedUp(alpha, gamma, c, v), "speed");
  measured(picture, at, found.alpha, found.acceptance_length, "tokens");
  measured(picture, at, found.alpha, found.speedup, "speed");
  picture.setAttribute("aria-label", `Against alpha, at gamma ${gamma}: tokens per target call rise from 1 to ` +
    `${gamma + 1}, the speed-up from ${fixed(gains[0][1])} to ${fixed(gains[100][1])}. Measured in this run: alpha ` +
    `${fixed(found.alpha)}, ${fixed(found.acceptance_length)} tokens per target call, speed-up ` +
    `${fixed(found.speedup)}.`);
  byId("measured-note").textContent = "Real text has easy and hard stretches, so a measured point lies beside the " +
    "line, not on it. The run is measured with a clock, which also counts what no formula has." +
    (found.drafter === "chain" ? "" : ` This run drafted by “${found.drafter}”; the formulas are about chains.`);
}

function drawByGamma(alpha, gamma, c, v, best) {
  const most = Number(byId("gamma").max), gammas = Array.from({ length: most }, (_, i) => i + 1);
  const gain = (length) => speedUp(alpha, length, c, costOfCall(length + 1, gamma, v));
  const tokens = gammas.map((x) => [x, expectedTokens(alpha, x)]), gains = gammas.map((x) => [x, gain(x)]);
  const top = 1.06 * Math.max(2, ...tokens.map(([, y]) => y), ...gains.map(([, y]) => y));
  const ticks = gammas.filter((x) => x === 1 || x % Math.ceil(most / 8) === 0);
  const at = scale(1, most, top), picture = blank("by-gamma", at, ticks, top, "gamma");
  picture.append(curve(at, tokens, "tokens"), curve(at, gains, "speed"));
  point(picture, at, gamma, expectedTokens(alpha, gamma), "tokens");
  point(picture, at, gamma, gain(gamma), "speed");
  const [x, y] = at(best, gain(best));
  picture.append(draw("line", { x1: x, x2: x, y1: y + 8, y2: BOX.bottom, class: "best" }));
  picture.setAttribute("aria-label", `Against gamma, at alpha ${fixed(alpha)}: the speed-up is greatest, ` +
    `${fixed(gain(best))}, at gamma ${best}.`);
}

function scale(least, most, top) {
  return (x, y) => [BOX.left + (x - least) / (most - least) * (BOX.right - BOX.left),
    BOX.bottom - y / top * (BOX.bottom - BOX.top)];
}

// Axes, and the line of the target alone.
function blank(id, at, ticks, top, name) {
  const picture = byId(id), apart = [0.5, 1, 2, 5, 10, 20, 50, 100].find((size) => top / size <= 7) ?? 500;
  picture.replaceChildren();
  for (let y = 0; y <= top; y += apart) {
    const [, height] = at(ticks[0], y);
    picture.append(draw("line", { x1: BOX.left, x2: BOX.right, y1: height, y2: height, class: "grid" }),
      draw("text", { x: BOX.left - 6, y: height + 4, class: "end" }, String(y)));
  }
  for (const x of ticks) {
    picture.append(draw("text", { x: at(x, 0)[0], y: BOX.bottom + 18, class: "middle" }, String(x)));
  }
  picture.append(draw("text", { x: (BOX.left + BOX.right) / 2, y: BOX.bottom + 36, class: "middle" }, name));
  const [, one] = at(ticks[0], 1);
  picture.append(draw("line", { x1: BOX.left, x2: BOX.right, y1: one, y2: one, class: "one" }),
    draw("text", { x: BOX.right, y: one + (one > BOX.bottom - 20 ? -6 : 15), class: "end" }, "the target alone"));
  return picture;
}

function curve(at, points, kind) {
  const places = points.map(([x, y]) => at(x, y).map((part) => fixed(part, 1)).join(","));
  return draw("polyline", { points: places.join(" "), class: "curve " + kind });
}

function point(picture, at, x, y, kind) {
  const [cx, cy] = at(x, y);
  picture.append(draw("circle", { cx, cy, r: 6, class: "dot " + kind }));
}

function measured(picture, at, x, y, kind) {
  const [cx, cy] = at(x, y);
  picture.append(draw("path", { d: `M${cx - 7},${cy} l7,-7 l7,7 l-7,7 z`, class: "measured " + kind }));
}

for (const name of SLIDERS) {
  byId(name).addEventListener("input", (event) => {
    if (name !== "gamma") event.target.step = 0.01;
    showFormulas();
  });
}
byId("as-measured").addEventListener("click", asMeasured);
asMeasured();
