// What happened to a run, on the charts' step axis: one lane a kind of thing, and as a list.
import { h, moment, refill } from "./dom.js";
import { count } from "./numbers.js";
import { margins, moveByKeys, pointAlong } from "./step_axis.js";
import { svg, title } from "./svg.js";
import { lanesOf } from "./story.js";

const LANE = 22;
const TOP = 4;
const NEAR = 7;
const MOST_WORDS = 12;
const MOST_LISTED = 300;
const LETTER = 6.2;
/** Pixels beside the plot in which the longest name of a lane fits. */
const ROOMY = 70;

/** Of a section with `.lanes` and, where there is to be a list, `.events`. */
export class Timeline {
  constructor(section, axis) {
    this.section = section;
    this.axis = axis;
    this.place = section.querySelector(".lanes");
    this.place.tabIndex = 0;
    this.story = { stretches: [], marks: [] };
    this.mostListed = MOST_LISTED;
    for (const what of ["range", "grown"]) axis.addEventListener(what, () => this.draw());
    for (const what of ["cursor", "selected"]) axis.addEventListener(what, () => this.#point());
    new ResizeObserver(() => this.draw()).observe(this.place);
    pointAlong(this.place, axis);
    moveByKeys(this.place, axis);
  }

  tell(story) {
    this.story = story;
    this.draw();
    this.#list();
  }

  draw() {
    const width = this.place.clientWidth;
    if (!width) return;
    const lanes = lanesOf(this.story);
    const height = TOP + lanes.length * LANE + 4;
    const { left, right } = margins();
    const plot = svg("svg", { x: left, y: 0, width: width - left - right, height, overflow: "hidden" });
    const picture = svg("svg", { width, height, role: "group", "aria-label": "Timeline; the list below says the same" });
    lanes.forEach((lane, index) => {
      const y = TOP + index * LANE;
      picture.append(
        svg("text", { x: left - 6, y: y + 15, class: "lane-name" }, left < ROOMY ? lane.shortName : lane.name),
        svg("line", { x1: left, x2: width - right, y1: y + LANE, y2: y + LANE, class: "lane-line" }));
      plot.append(...this.#bars(lane.bars, y, width, left));
      for (const cluster of this.#clusters(lane.marks, width, left)) plot.append(this.#mark(cluster, y));
    });
    picture.append(plot);
    this.cursor = h("div", { class: "cursor", hidden: true });
    this.chosen = h("div", { class: "cursor chosen", hidden: true });
    refill(this.place, picture, this.cursor, this.chosen);
    this.#point();
  }

  /** Bars that lie over one another, or so near that they are drawn so, name all of them. */
  #bars(bars, y, width, left) {
    const groups = [];
    for (const bar of bars.toSorted((a, b) => a.from - b.from)) {
      const x0 = this.axis.x(bar.from, width) - left;
      const x1 = Math.max(x0 + 3, this.axis.x(bar.to, width) - left);
      const over = groups.findLast((one) => one.isThin === bar.isThin && x0 < one.x1);
      if (over) {
        over.bars.push({ ...bar, x0, x1 });
        over.x1 = Math.max(over.x1, x1);
      } else groups.push({ bars: [{ ...bar, x0, x1 }], x0, x1, isThin: bar.isThin });
    }
    const edge = width - left - margins().right;
    let taken = 0;
    return groups.flatMap((group, index) => {
      const free = { from: taken, to: Math.min(groups[index + 1]?.x0 ?? edge, edge) };
      const { drawn, end } = this.#group(group, y, free);
      taken = Math.max(taken, end);
      return drawn;
    });
  }

  /** What is drawn of bars that share a place, and where that ends. */
  #group({ bars, x0, x1 }, y, free) {
    const words = bars.slice(0, MOST_WORDS).map((bar) => bar.words).join("\n");
    const drawn = bars.map((bar) => {
      const box = svg("rect", { x: bar.x0, y: y + (bar.isThin ? 17 : 4), width: bar.x1 - bar.x0,
        height: bar.isThin ? 3 : 13, rx: 2, class: `bar ${bar.look}` }, title(words));
      return bar.href ? svg("a", { href: bar.href }, box) : box;
    });
    const label = this.#label(namesOf(bars), { x0: Math.max(x0, 0), x1, free });
    if (!label) return { drawn, end: x1 };
    const text = svg("text", { ...label.at, y: y + 14, class: `bar-label ${bars[0].look}` }, label.text);
    return { drawn: [...drawn, text], end: label.end };
  }

  /** The longest of some names that has room in a bar, or beside it where no other is in the way. */
  #label(names, { x0, x1, free }) {
    for (const text of names) {
      const room = LETTER * text.length + 10;
      if (x1 - x0 > room) return { text, at: { x: x0 + 6 }, end: x1 };
      if (x0 - free.from > room) return { text, at: { x: x0 - 6, "text-anchor": "end" }, end: x1 };
      if (x1 > 0 && free.to - x1 > room) return { text, at: { x: x1 + 6 }, end: x1 + room };
    }
    return null;
  }

  #clusters(marks, width, left) {
    const found = [];
    const [from, to] = this.axis.range;
    for (const mark of marks.filter((one) => one.step >= from && one.step <= to)) {
      const x = this.axis.x(mark.step, width) - left;
      const last = found.at(-1);
      if (last && x - last.x < NEAR && last.marks[0].look === mark.look) last.marks.push(mark);
      else found.push({ x, marks: [mark] });
    }
    return found;
  }

  #mark(cluster, y) {
    const [mark] = cluster.marks;
    const words = cluster.marks.slice(0, MOST_WORDS).map((one) => `Step ${count(one.step)}: ${one.words}`).join("\n");
    const shape = svg("path", { d: SHAPES[mark.shape], transform: `translate(${cluster.x} ${y + 11})`,
      class: `mark ${mark.shape} ${mark.look}` }, title(words));
    const parts = [shape];
    if (mark.to !== undefined) {
      const x = this.axis.x(mark.to, this.place.clientWidth) - margins().left;
      parts.unshift(svg("path", { d: `M${cluster.x} ${y + 11}H${x}m4 -4l-4 4l4 4`, class: `back ${mark.look}` }));
    }
    return mark.href ? svg("a", { href: mark.href }, ...parts) : svg("g", {}, ...parts);
  }

  #point() {
    if (!this.cursor) return;
    const width = this.place.clientWidth;
    const [from, to] = this.axis.range;
    for (const [line, step] of [[this.cursor, this.axis.cursor], [this.chosen, this.axis.selected]]) {
      line.hidden = step === null || step < from || step > to;
      if (!line.hidden) line.style.transform = `translateX(${this.axis.x(step, width)}px)`;
    }
  }

  #list() {
    const { marks } = this.story;
    if (!this.section.querySelector(".events")) return;
    const newest = marks.toSorted((a, b) => (a.at < b.at ? 1 : -1)).slice(0, this.mostListed);
    const num = count(marks.length);
    const isWhole = newest.length === marks.length;
    this.section.querySelector(".num-events").textContent = isWhole ? num : `newest ${count(newest.length)} of ${num}`;
    const more = this.section.querySelector(".more-events");
    more.hidden = isWhole;
    more.onclick = () => { this.mostListed = Infinity; this.#list(); };
    refill(this.section.querySelector(".events tbody"), ...newest.map((mark) => h("tr", {},
      h("td", { class: "nowrap" }, moment(mark.at)),
      h("td", { class: "num" }, mark.step === null ? "–" : h("button",
        { type: "button", class: "link", onclick: () => this.axis.select(mark.step) }, count(mark.step))),
      h("td", {}, mark.href ? h("a", { href: mark.href }, mark.words) : mark.words))));
  }
}

/** All names of bars that share a place, each once, and the first with how many more there are. */
function namesOf(bars) {
  const names = [...new Set(bars.map((bar) => bar.label).filter(Boolean))];
  if (names.length < 2) return names;
  return [names.join(", "), `${names[0]} and ${names.length - 1} more`];
}

const SHAPES = {
  square: "M-4 -4h8v8h-8z",
  diamond: "M0 -5.5L5.5 0L0 5.5L-5.5 0z",
  triangle: "M0 -5L5 4H-5z",
  down: "M0 5L5 -4H-5z",
  tick: "M-1 -5h2v10h-2z",
  cross: "M-4 -4L4 4M4 -4L-4 4",
};
