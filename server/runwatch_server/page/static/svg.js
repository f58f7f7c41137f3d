// SVG elements out of values, as dom.js makes them of HTML.

const SPACE = "http://www.w3.org/2000/svg";

/** An element: svg("rect", {x: 1, class: "mark"}, child). */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.flat());
  return element;
}

/** What is read out, and shown on hovering. */
export const title = (text) => svg("title", {}, text);
