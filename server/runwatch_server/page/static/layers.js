// The layers' part of a run's page: the heat map and its controls, the worst layers of a step, and
// one layer's series beside its neighbours'.
import { getJson } from "./api.js";
import { Chart } from "./chart.js";
import { h } from "./dom.js";
import { gapWords } from "./gaps.js";
import { gridOf, mediansOf } from "./heat_grid.js";
import { Heatmap, mapQuery, placeLines } from "./heatmap.js";
import { LayerHistograms } from "./layer_histograms.js";
import { count, counted, short } from "./numbers.js";
import { isOfSizes } from "./series.js";
import { margins, moveByKeys, pointAlong } from "./step_axis.js";
import { limitsOf } from "./thresholds.js";
import { WorstLayers } from "./worst_layers.js";

/** The healthy past: so many steps before the first open alert, and in how many columns. */
const PAST = 4096;
const PAST_POINTS = 64;
const LEAST_PAST = 8;

export class Layers {
  #asked = null;
  #row = 0;
  /** What was asked for of the healthy past, and each layer's median in it. */
  #past = {};
  /** The stat and the steps that the grid holds. */
  #held = "";

  constructor(section, axis, view, run) {
    Object.assign(this, { section, axis, view, run });
    this.canvas = section.querySelector("canvas");
    this.map = new Heatmap(this.canvas, axis);
    this.stat = section.querySelector("[name=stat]");
    this.mode = section.querySelector("[name=scale]");
    this.search = section.querySelector("[name=layer]");
    this.rank = section.querySelector("[name=rank]");
    this.says = section.querySelector(".map .says");
    this.worst = new WorstLayers(section.querySelector(".worst"), (name) => this.show(name));
    this.histograms = new LayerHistograms(section.querySelector(".histograms"), run);
    this.layer = null;
    this.onset = null;
    this.#listen();
    this.#chooseScale();
  }

  #listen() {
    this.stat.addEventListener("change", () => { this.#chooseScale(); this.refresh(); });
    this.mode.addEventListener("change", () => this.#draw());
    this.rank?.addEventListener("change", () => this.refresh());
    this.search.addEventListener("input", () => this.#draw());
    this.axis.addEventListener("range", () => this.refresh());
    this.axis.addEventListener("cursor", () => this.#point());
    this.axis.addEventListener("selected", () => { this.#point(); this.#listWorst(); this.#showHistograms(); });
    document.addEventListener("themechange", () => this.#draw());
    new ResizeObserver(() => this.#draw()).observe(this.canvas.parentElement);
    new IntersectionObserver((entries) => {
      this.isInSight = entries.at(-1).isIntersecting;
      if (this.isInSight && this.isStale !== false) this.refresh();
    }, { rootMargin: "300px" }).observe(this.section);
    addEventListener("beforeprint", () => { this.isInSight = true; if (!this.grid) this.refresh(); });
    pointAlong(this.canvas.parentElement, this.axis);
    moveByKeys(this.canvas, this.axis);
    this.canvas.addEventListener("pointermove", (event) => this.#hover(event));
    this.canvas.addEventListener("click", (event) => this.#choose(this.#cellOf(event)));
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  #chooseScale() {
    this.mode.value = isOfSizes(this.stat.value) ? "own" : "size";
  }

  async refresh() {
    this.isStale = true;
    if (!this.isInSight) return;
    this.#asked?.abort();
    const asked = this.#asked = new AbortController();
    this.isStale = false;
    const { trained } = this.axis;
    const wanted = `${this.stat.value} ${this.axis.range.join("-")}`;
    try {
      const [answer, healthy] = await Promise.all([
        getJson(`/runs/${this.run}/heatmap?${this.#query()}`, asked), this.#healthy()]);
      if (asked.signal.aborted) return;
      const before = this.grid;
      this.grid = Object.assign(gridOf(answer, trained), { healthy });
      this.#held = wanted;
      this.fault = "";
      this.#draw();
      const isOther = before?.stat !== this.grid.stat || before.rank !== this.grid.rank;
      if (isOther) this.#showLayer();
      if (isOther || this.axis.selected === null) this.#listWorst();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.isStale = true;
      this.fault = error.message;
      this.#say(this.fault);
    }
  }

  /** Each layer's median before the first open alert, however far back that is from what is in
      view; null where none is open, or nothing came before it. */
  async #healthy() {
    const { onset, axis } = this;
    if (onset === null || onset - axis.first < LEAST_PAST) return null;
    const wanted = `${this.stat.value} ${this.rank?.value} ${axis.first} ${onset}`;
    if (this.#past.wanted !== wanted) {
      const [from, to] = [Math.max(axis.first, onset - PAST), onset - 1];
      const query = this.#query({ from, to, points: PAST_POINTS });
      const answer = getJson(`/runs/${this.run}/heatmap?${query}`);
      this.#past = { wanted, medians: answer.then((found) => mediansOf(gridOf(found, [from, to])), () => null) };
    }
    return this.#past.medians;
  }

  /** `onset`: where the first alert that is open began; null if none is. */
  tell(onset) {
    if (this.onset === onset) return;
    this.onset = onset;
    this.refresh();
  }

  #query(more = {}) {
    const query = mapQuery(this.canvas, this.axis, { stat: this.stat.value });
    if (this.rank) query.set("rank", this.rank.value);
    for (const [name, value] of Object.entries(more)) query.set(name, String(value));
    return query;
  }

  #say(text) {
    this.says.textContent = text;
    this.says.hidden = !text;
  }

  #draw() {
    if (!this.grid || !this.canvas.parentElement.clientWidth) return;
    const wanted = this.search.value.toLowerCase();
    const rows = this.grid.layers.map((_, layer) => layer)
      .filter((layer) => this.grid.layers[layer].toLowerCase().includes(wanted));
    this.#row = Math.min(this.#row, Math.max(0, rows.length - 1));
    this.map.draw(this.grid, rows, this.mode.value);
    this.#say(this.#emptyWords(rows));
    this.#label();
    this.#explain(rows.length);
    this.#point();
    this.section.dataset.drawn = this.#held;
  }

  /** Why there is nothing to see, or no more than this. */
  #emptyWords(rows) {
    if (this.fault) return this.fault;
    if (!rows.length) return "No layer has that in its name.";
    return this.grid.columns ? "" : `These ${gapWords(this.grid.gaps[0])}.`;
  }

  #explain(numRows) {
    const { scale } = this.map;
    if (!scale) return;
    const legend = this.section.querySelector(".legend");
    legend.querySelector(".ramp").style.background = this.map.legend();
    legend.querySelector(".low").textContent = scale.isOwn ? "⅛ of usual" : short(scale.from);
    legend.querySelector(".high").textContent = scale.isOwn ? "8 ×" : short(scale.to);
    const broken = this.grid.onsets.filter((onset) => onset >= 0);
    const width = counted(this.grid.step_width, "step");
    legend.querySelector(".words").textContent = broken.length
      ? `${count(broken.length)} of ${counted(this.grid.layers.length, "layer")} ${broken.length === 1 ? "holds" : "hold"} NaN or infinity, the first ${this.#firstSpan(Math.min(...broken))}.`
      : `${counted(numRows, "layer")}, ${width} a column${this.#folded()}. All finite.`;
    legend.querySelector(".gap-key").hidden = !this.grid.isHollow;
  }

  #firstSpan(column) {
    const { steps, step_width: width } = this.grid;
    return width === 1 ? `from step ${count(steps[column])}`
      : `within steps ${count(steps[column])} to ${count(steps[column] + width - 1)}`;
  }

  #folded() {
    return this.map.layersPerRow > 1 ? `, the worst of ${this.map.layersPerRow} a row` : "";
  }

  /** Names at the left: of every layer where there is room, else of the blocks they are in. */
  #label() {
    const place = this.section.querySelector(".names");
    const height = this.map.rowPixels;
    let last = -99;
    let before = "";
    const labels = [];
    for (let row = 0; row < this.map.numRows; row += 1) {
      const name = this.grid.layers[this.map.layersOf(row)[0]];
      const text = height >= 12 ? name.replace(/\.weight$/, "") : blockOf(name);
      const y = row * height;
      if (text === before || y - last < 13) continue;
      const label = h("span", { title: name }, text);
      label.style.top = `${y}px`;
      labels.push(label);
      [last, before] = [y, text];
    }
    place.style.width = `${margins().left - 6}px`;
    place.replaceChildren(...labels);
  }

  #cellOf(event) {
    const box = this.canvas.getBoundingClientRect();
    return this.map.cellAt(event.clientX - box.left, event.clientY - box.top);
  }

  #hover(event) {
    const cell = this.#cellOf(event);
    if (!cell) return;
    this.#row = cell.row;
    this.#read(cell);
  }

  #read(cell) {
    const { step, worth, gap } = this.map.words(cell);
    const usual = this.map.scale.usual?.(cell.layer, cell.column);
    const ratio = cell.isInside && !cell.broken && usual > 0 && cell.value > 0
      ? ` (${short(cell.value / usual)} × its usual) ` : " ";
    this.section.querySelector(".reading").replaceChildren(
      h("b", {}, this.grid.layers[cell.layer]), ` at step ${count(step)}: `, h("b", {}, worth), ratio, gap);
    this.#frame(cell);
  }

  #frame(cell) {
    const frame = this.section.querySelector(".frame");
    frame.hidden = !cell.isInside;
    const width = this.canvas.clientWidth;
    const x0 = this.axis.x(this.grid.steps[cell.column], width);
    const x1 = this.axis.x(this.grid.steps[cell.column] + this.grid.step_width, width);
    frame.style.transform = `translate(${x0 - 1}px, ${cell.row * this.map.rowPixels - 1}px)`;
    frame.style.width = `${Math.max(4, x1 - x0) + 2}px`;
    frame.style.height = `${Math.max(4, this.map.rowPixels) + 2}px`;
  }

  #key(event) {
    const moves = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10 };
    if (!this.grid?.columns) return;
    if (moves[event.key]) {
      event.preventDefault();
      this.#row = Math.max(0, Math.min(this.map.numRows - 1, this.#row + moves[event.key]));
    }
    const step = this.axis.cursor ?? this.axis.selected ?? this.grid.steps[0];
    if (event.key === "Enter") this.#choose(this.map.cell(this.#row, step));
    this.#read(this.map.cell(this.#row, step));
  }

  #choose(cell) {
    if (!cell) return;
    this.axis.select(cell.step);
    this.show(this.grid.layers[cell.layer]);
  }

  #point() {
    placeLines(this.section, this.canvas, this.axis);
    if (this.axis.cursor === null) this.section.querySelector(".frame").hidden = true;
  }

  /** At the step looked at, or at the newest. Only the map knows medians and onsets. */
  async #listWorst() {
    if (!this.grid) return;
    const step = this.axis.selected ?? this.axis.last;
    const ask = (from, to, points) => getJson(`/runs/${this.run}/heatmap?${this.#query({ from, to, points })}`);
    await this.worst.list(step, this.grid, ask);
  }

  /** One layer's series, and those of the layers before and after it; as soon as the map knows its
      layers, which it asks for when it comes into sight. */
  show(name) {
    this.layer = name;
    this.#showLayer();
    this.onShow?.(name);
    const place = this.section.querySelector(".layer");
    (place.hidden ? this.section : place).scrollIntoView({ block: "nearest" });
  }

  #showHistograms() {
    if (!this.layer) return;
    this.histograms.show(this.layer, this.stat.value, this.axis.selected, this.rank?.value ?? 0);
  }

  #showLayer() {
    if (!this.layer || !this.grid) return;
    const place = this.section.querySelector(".layer");
    const at = this.grid.layers.indexOf(this.layer);
    place.hidden = at < 0;
    if (at < 0) return;
    const near = [at, at - 1, at + 1].filter((index) => index >= 0 && index < this.grid.layers.length);
    const rank = this.rank ? Number(this.rank.value) : undefined;
    const series = near.map((index, order) => ({
      name: this.grid.layers[index], dash: order ? "dot" : "solid",
      what: { layer: this.grid.layers[index], stat: this.stat.value, rank },
    }));
    place.querySelector("h3").textContent = `${this.stat.value} of ${this.layer} and its neighbours`;
    this.#showHistograms();
    const isLog = isOfSizes(this.stat.value);
    if (this.chart) return this.chart.replace(series);
    const limits = (range, signal) => this.#limits(range, signal);
    this.chart = new Chart(place, this.axis, this.view, { run: this.run, series, isLog, limits });
  }

  /** The levels by which rules judge the layer itself; its neighbours have their own. Rules are
      judged on rank 0. */
  #limits(range, signal) {
    if (!this.view.thresholds || (this.rank && this.rank.value !== "0")) return [];
    return limitsOf(this.run, { layer: this.layer, stat: this.stat.value }, range, signal);
  }

  /** What is drawn over the layer's series may have changed. */
  refreshLayer() {
    this.chart?.refresh();
  }
}

/** `blocks.3` of `blocks.3.attn.weight`: up to the first number, else the first part. */
function blockOf(name) {
  const parts = name.split(".");
  const numbered = parts.findIndex((part) => /^\d+$/.test(part));
  return parts.slice(0, numbered < 0 ? 1 : numbered + 1).join(".");
}
