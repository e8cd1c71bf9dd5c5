"use strict";
// What the three views share. Whatever a model wrote reaches the page as textContent, so it is shown and never run.

const RUN = JSON.parse(document.getElementById("run").textContent);

function byId(id) {
  return document.getElementById(id);
}

// A new element with a class and a text.
function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

// A new element of a picture, with its attributes.
function draw(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// Sets sides of an element as parts of the whole, 0 to 1.
function place(element, sides) {
  for (const [side, part] of Object.entries(sides)) element.style[side] = 100 * part + "%";
  return element;
}

function fixed(number, digits = 2) {
  return number.toFixed(digits);
}

function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}

// What is written is read aloud: only where it has changed.
function say(id, text) {
  if (byId(id).textContent !== text) byId(id).textContent = text;
}

function showSummary() {
  const found = RUN.numbers;
  const written = sum(RUN.rounds.map((round) => round.written));
  const speed = found.speedup > 1 ? `${fixed(found.speedup)} times as fast as the target alone`
                                  : `${fixed(1 / found.speedup)} times slower than the target alone`;
  byId("summary").textContent = `This run: ${count(written, "token")} in ${count(RUN.rounds.length, "target call")}, ` +
    `${speed} (${found.method}, temperature ${found.temperature}; ${found.setting}).` +
    (found.busy ? " The machine was busy then, so its times are rough." : "");
  byId("command").textContent = found.command;
}

showSummary();
