// All ranks of a run in one picture, rank x step: who differs from the others at a step stands out.
import { getJson } from "./api.js";
import { h } from "./dom.js";
import { gapAt, gapWords } from "./gaps.js";
import { gridOf } from "./heat_grid.js";
import { Heatmap, mapQuery, placeLines } from "./heatmap.js";
import { count, counted, short } from "./numbers.js";
import { margins, moveByKeys, pointAlong } from "./step_axis.js";

const LABEL_PIXELS = 13;

export class RankMap {
  #asked = null;
  #row = 0;
  /** The metric and the steps that the grid holds. */
  #held = "";
  /** Of each rank the name of its host, where it is known. */
  hosts = new Map();

  /** `place`: the element around legend, map and reading. `onChoose(rank)` hears of a chosen rank. */
  constructor(place, axis, run, onChoose) {
    Object.assign(this, { place, axis, run, onChoose });
    this.canvas = place.querySelector("canvas");
    this.says = place.querySelector(".map .says");
    this.map = new Heatmap(this.canvas, axis);
    this.metric = null;
    const around = this.canvas.parentElement;
    pointAlong(around, axis);
    moveByKeys(this.canvas, axis);
    new ResizeObserver(() => this.#draw()).observe(around);
    axis.addEventListener("range", () => this.refresh());
    axis.addEventListener("cursor", () => this.#point());
    axis.addEventListener("selected", () => this.#point());
    document.addEventListener("themechange", () => this.#draw());
    this.canvas.addEventListener("pointermove", (event) => this.#read(this.#cellOf(event)));
    this.canvas.addEventListener("click", (event) => this.#choose(this.#cellOf(event)));
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    new IntersectionObserver((entries) => {
      this.isInSight = entries.at(-1).isIntersecting;
      if (this.isInSight && this.isStale) this.refresh();
    }, { rootMargin: "300px" }).observe(place);
  }

  show(metric) {
    this.metric = metric;
    this.refresh();
  }

  async refresh() {
    this.isStale = true;
    if (!this.isInSight || !this.metric) return;
    this.#asked?.abort();
    const asked = this.#asked = new AbortController();
    this.isStale = false;
    const { trained } = this.axis;
    const wanted = `${this.metric} ${this.axis.range.join("-")}`;
    try {
      const answer = await getJson(`/runs/${this.run}/ranks?${mapQuery(this.canvas, this.axis, { metric: this.metric })}`, asked);
      if (asked.signal.aborted) return;
      // What cannot be read of one rank is there of the others: no gap of the whole picture.
      this.grid = gridOf({ ...answer, gaps: [], layers: answer.ranks }, trained);
      this.#held = wanted;
      this.unread = answer.gaps ?? [];
      this.#say(this.grid.columns ? "" : `These ${gapWords(this.grid.gaps[0])}.`);
      this.#draw();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.isStale = true;
      this.#say(error.message);
    }
  }

  #say(text) {
    this.says.textContent = text;
    this.says.hidden = !text;
  }

  #draw() {
    if (!this.grid || !this.canvas.parentElement.clientWidth) return;
    this.map.draw(this.grid, this.grid.layers.map((_, row) => row), "peers");
    this.place.querySelector(".ramp").style.background = this.map.colours ? this.map.legend() : "";
    this.place.querySelector(".words").textContent = this.#words();
    this.place.querySelector(".gap-key").hidden = !this.grid.isHollow;
    this.#label();
    this.#point();
    this.place.dataset.drawn = this.#held;
  }

  #words() {
    const width = counted(this.grid.step_width, "step");
    const broken = this.grid.onsets.filter((onset) => onset >= 0).length;
    return `${counted(this.grid.layers.length, "rank")}, ${width} a column.`
      + (broken ? ` ${count(broken)} sent NaN or infinity.` : "");
  }

  #label() {
    const every = Math.ceil(LABEL_PIXELS / (this.map.rowPixels / this.map.layersPerRow));
    const names = this.place.querySelector(".names");
    names.style.width = `${margins().left - 6}px`;
    names.replaceChildren(...this.grid.layers.flatMap((rank, row) => {
      if (row % every) return [];
      const label = h("span", {}, String(rank));
      label.style.top = `${(row / this.map.layersPerRow) * this.map.rowPixels}px`;
      return [label];
    }));
  }

  #cellOf(event) {
    const box = this.canvas.getBoundingClientRect();
    return this.map.cellAt(event.clientX - box.left, event.clientY - box.top);
  }

  #read(cell) {
    if (!cell) return;
    this.#row = cell.row;
    const { peers } = this.map.scale;
    const unread = Number.isNaN(cell.value) && !cell.broken && gapAt(this.unread, cell.step);
    const { step, worth, gap } = this.map.words(unread ? { ...cell, gap: unread } : cell);
    const share = cell.isInside && cell.value > 0 && peers[cell.column] > 0
      ? ` (${short(cell.value / peers[cell.column])} × the ranks' median) ` : " ";
    const rank = this.grid.layers[cell.layer];
    const host = this.hosts.get(rank);
    this.place.querySelector(".reading").replaceChildren(
      h("b", {}, `rank ${rank}`), ...(host ? [" on ", h("bdi", {}, host)] : []),
      ` at step ${count(step)}: `, h("b", {}, worth), share, gap);
  }

  #choose(cell) {
    if (!cell) return;
    this.axis.select(cell.step);
    this.onChoose(this.grid.layers[cell.layer]);
  }

  #key(event) {
    const moves = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10 };
    if (!this.grid?.columns) return;
    if (moves[event.key]) {
      event.preventDefault();
      this.#row = Math.max(0, Math.min(this.map.numRows - 1, this.#row + moves[event.key]));
    }
    const step = this.axis.cursor ?? this.axis.selected ?? this.grid.steps[0];
    const cell = this.map.cell(this.#row, step);
    if (event.key === "Enter") this.#choose(cell);
    this.#read(cell);
  }

  #point() {
    placeLines(this.place, this.canvas, this.axis);
  }
}
