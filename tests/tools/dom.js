// As much of a browser as the page's scripts ask for, so that node can run them: elements with their texts, attributes
// and classes, and no layout.

class Element {
  constructor(tag) {
    Object.assign(this, { tag, nodes: [], attributes: {}, dataset: {}, listeners: {}, className: "", parent: null,
      style: { setProperty() {} }, offsetTop: 0, clientHeight: 0 });
    this.classList = {
      add: (name) => this.classes(true, name), remove: (name) => this.classes(false, name),
      toggle: (name, on) => this.classes(on, name),
    };
  }
  classes(on, name) {
    const others = this.className.split(" ").filter((its) => its && its !== name);
    this.className = [...others, ...(on ? [name] : [])].join(" ");
  }
  get children() { return this.nodes.filter((node) => node instanceof Element); }
  get firstChild() { return this.nodes[0] ?? null; }
  get lastChild() { return this.nodes[this.nodes.length - 1] ?? null; }
  get textContent() { return this.nodes.map((node) => node.textContent ?? node).join(""); }
  set textContent(text) { this.nodes = text === "" ? [] : [String(text)]; }
  append(...nodes) {
    for (const node of nodes) if (node instanceof Element) node.parent = this;
    this.nodes.push(...nodes.map((node) => node instanceof Element ? node : String(node)));
  }
  replaceChildren(...nodes) { this.nodes = []; this.append(...nodes); }
  remove() { this.parent.nodes = this.parent.nodes.filter((node) => node !== this); }
  setAttribute(name, value) {
    this.attributes[name] = String(value);
    if (name === "class") this.className = value;
  }
  addEventListener(name, run) { this.listeners[name] = run; }
  fire(name) { this.listeners[name]({ target: this, preventDefault() {} }); }
  querySelectorAll(selector) {
    const [tag, ...names] = selector.split(".");
    const fits = (it) => (!tag || it.tag === tag) && names.every((name) => it.className.split(" ").includes(name));
    return this.children.flatMap((it) => [...(fits(it) ? [it] : []), ...it.querySelectorAll(selector)]);
  }
  querySelector(selector) { return this.querySelectorAll(selector)[0] ?? null; }
}

const byName = new Map();
globalThis.document = {
  getElementById(id) {
    if (!byName.has(id)) byName.set(id, new Element(id));
    return byName.get(id);
  },
  querySelector: (selector) => document.getElementById(selector),         // one for each selector: an output's "for"
  createElement: (tag) => new Element(tag),
  createElementNS: (space, tag) => new Element(tag),
};
