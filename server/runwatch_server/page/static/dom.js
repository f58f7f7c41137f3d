// Elements out of values. Texts become text nodes, never markup: names of runs and layers are
// whatever somebody typed.

import { ago, exact } from "./time.js";

/** By these an element is known again, in this order. */
const NAMES = ["id", "href", "data-approve", "data-cancel", "data-opens"];

/** An element: h("a", {href: url, class: "quiet"}, "text", child). Null children are left out. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** Puts other children in the place of a node's own; a reader who stands on one of them keeps it. */
export function refill(node, ...children) {
  const focused = node === document.activeElement ? null : node.querySelector(":focus");
  node.replaceChildren(...children);
  if (focused) twin(focused, node)?.focus({ preventScroll: true });
}

/** The element below a node that stands for the same thing as another did. */
export function twin(element, node) {
  const name = NAMES.find((candidate) => element.hasAttribute(candidate));
  if (name) return node.querySelector(`[${name}="${CSS.escape(element.getAttribute(name))}"]`);
  return [...node.querySelectorAll(element.localName)].find((one) => one.textContent === element.textContent);
}

/** What went wrong, to stand beside what somebody pressed. */
export function fault(text) {
  return h("p", { class: "fault", role: "alert" }, text);
}

/** A <time> that shell.js keeps fresh; a dash where nobody knows it: a log without times counts its
    rows as seconds from 1970 on. */
export function moment(text) {
  if (!text || text.startsWith("1970")) return "–";
  const date = new Date(text);
  return h("time", { datetime: text, "data-ago": true, title: exact(date) }, ago(date));
}

/** The JSON that the server put into <script type="application/json" id=...>. */
export function embedded(id) {
  const element = document.getElementById(id);
  return element ? JSON.parse(element.textContent) : null;
}
