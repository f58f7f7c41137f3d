// The one step axis that the timeline, the charts and the heat map share: which steps are in view,
// where the pointer is, and which step is looked at.

const NARROW = matchMedia("(max-width: 46rem)");

/** Pixels left and right of every plot, so that equal steps stand above each other. */
export const margins = () => (NARROW.matches ? { left: 52, right: 12 } : { left: 84, right: 20 });

export class StepAxis extends EventTarget {
  #range = null;
  #before = [];

  constructor(first, last) {
    super();
    this.first = first;
    this.last = last;
    this.cursor = null;
    this.selected = null;
  }

  /** The first and last step in view. */
  get range() {
    return this.#range ?? [this.first, Math.max(this.last, this.first + 1)];
  }

  /** The same, without what is in view behind the last step. */
  get trained() {
    const [from, to] = this.range;
    return [from, Math.min(to, this.last)];
  }

  /** Whether all steps are in view, and new ones will be. */
  get isWhole() {
    return this.#range === null;
  }

  zoom(first, last) {
    const from = Math.max(this.first, Math.floor(Math.min(first, last)));
    const to = Math.min(Math.max(this.last, this.first + 1), Math.ceil(Math.max(first, last)));
    if (to - from < 1) return;
    this.#before.push(this.#range);
    this.#range = from <= this.first && to >= this.last ? null : [from, to];
    this.#tell("range");
  }

  /** Closer (factor below 1) or further away, around a step. */
  scale(factor, around = this.cursor ?? (this.range[0] + this.range[1]) / 2) {
    const [from, to] = this.range;
    this.zoom(around - (around - from) * factor, around + (to - around) * factor);
  }

  /** To the side, by a share of what is in view. */
  pan(share) {
    const [from, to] = this.range;
    const wanted = (to - from) * share;
    const shift = Math.max(this.first - from, Math.min(this.last - to, wanted));
    this.zoom(from + shift, to + shift);
  }

  back() {
    if (!this.#before.length) return;
    this.#range = this.#before.pop();
    this.#tell("range");
  }

  showAll() {
    if (this.isWhole) return;
    this.#before.push(this.#range);
    this.#range = null;
    this.#tell("range");
  }

  /** More steps have come. */
  grow(first, last) {
    if (first === this.first && last === this.last) return;
    this.first = first;
    this.last = last;
    this.#tell(this.isWhole ? "range" : "grown");
  }

  /** Other steps altogether; all of them are in view. */
  reset(first, last) {
    Object.assign(this, { first, last, cursor: null, selected: null });
    this.#range = null;
    this.#before = [];
    this.#tell("range");
  }

  point(step) {
    if (step === this.cursor) return;
    this.cursor = step;
    this.#tell("cursor");
  }

  select(step) {
    this.selected = step === null ? null : Math.max(this.first, Math.min(this.last, step));
    this.#tell("selected");
  }

  /** Where a step is in an element of this width, in pixels from its left. */
  x(step, width) {
    const { left, right } = margins();
    const [from, to] = this.range;
    return left + ((step - from) / (to - from)) * (width - left - right);
  }

  /** Which step is at a pixel; null beside the plot. */
  stepAt(x, width) {
    const { left, right } = margins();
    const share = (x - left) / (width - left - right);
    if (!(share >= 0 && share <= 1)) return null;
    const [from, to] = this.range;
    return Math.round(from + share * (to - from));
  }

  #tell(what) {
    this.dispatchEvent(new Event(what));
  }
}

let rests = null;

// A page that scrolls under a resting pointer must not take the cursor from the keys.
function hasMoved(event) {
  const isNew = rests?.x !== event.clientX || rests?.y !== event.clientY;
  rests = { x: event.clientX, y: event.clientY };
  return isNew;
}

/** Lets an element of the axis's geometry move the cursor, and choose a step by a click. */
export function pointAlong(element, axis) {
  let pressedAt = null;
  const stepOf = (event) => {
    const box = element.getBoundingClientRect();
    return axis.stepAt(event.clientX - box.left, box.width);
  };
  element.addEventListener("pointermove", (event) => {
    if (hasMoved(event)) axis.point(stepOf(event));
  });
  element.addEventListener("pointerleave", () => axis.point(null));
  element.addEventListener("pointerdown", (event) => { pressedAt = event.clientX; }, true);
  element.addEventListener("click", (event) => {
    const isClick = pressedAt !== null && Math.abs(event.clientX - pressedAt) < 4;
    const step = stepOf(event);
    if (isClick && step !== null) axis.select(step);
  }, true);
  element.addEventListener("dblclick", () => axis.showAll());
}

/** The keys by which somebody without a pointer moves along the axis. */
export function moveByKeys(element, axis) {
  element.addEventListener("keydown", (event) => {
    // On a link or a button inside, Enter is a click.
    if (event.key === "Enter" && event.target !== element) return;
    const [from, to] = axis.range;
    const stride = Math.max(1, Math.round((to - from) / 100));
    const at = axis.cursor ?? axis.selected ?? Math.round((from + to) / 2);
    const moves = {
      ArrowLeft: () => (event.shiftKey ? axis.pan(-0.25) : axis.point(Math.max(from, at - stride))),
      ArrowRight: () => (event.shiftKey ? axis.pan(0.25) : axis.point(Math.min(to, at + stride))),
      "+": () => axis.scale(0.5, at),
      "=": () => axis.scale(0.5, at),
      "-": () => axis.scale(2, at),
      0: () => axis.showAll(),
      Enter: () => axis.select(at),
      Escape: () => axis.point(null),
    };
    if (!moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    moves[event.key]();
  });
}
