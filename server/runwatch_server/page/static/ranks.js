// Ranks side by side: one metric of each, and who is behind.
import { Chart } from "./chart.js";
import { h } from "./dom.js";
import { count } from "./numbers.js";

const MOST = 8;

export class Ranks {
  constructor(section, axis, view, run) {
    this.section = section;
    this.metric = section.querySelector("select");
    this.ranks = [];
    this.chart = new Chart(section.querySelector(".chart"), axis, view, { run, series: [] });
    this.metric.addEventListener("change", () => this.#draw());
  }

  /** `ranks`: `{rank, last_step}` of the current attempt. */
  tell(ranks) {
    const isNew = ranks.length !== this.ranks.length;
    this.ranks = ranks;
    const furthest = Math.max(...ranks.map((one) => one.last_step));
    this.section.querySelector("tbody").replaceChildren(...ranks.map((one) => h("tr", {},
      h("td", { class: "num" }, String(one.rank)),
      h("td", { class: "num" }, count(one.last_step)),
      h("td", { class: "num" }, one.last_step === furthest ? "–" : `${count(furthest - one.last_step)} steps`))));
    if (isNew) this.#draw();
    else this.chart.refresh();
  }

  /** All where they are few, else the first and those furthest behind. */
  #draw() {
    const behind = this.ranks.toSorted((a, b) => a.last_step - b.last_step || a.rank - b.rank);
    const chosen = new Set([this.ranks[0], ...behind].slice(0, MOST));
    const metric = this.metric.value;
    this.section.querySelector("h3").textContent = this.ranks.length > MOST
      ? `${metric} of rank 0 and the ${MOST - 1} furthest behind` : `${metric} of each rank`;
    this.chart.replace([...chosen].sort((a, b) => a.rank - b.rank).map((one) => ({
      name: `rank ${one.rank}`, what: { metric, rank: one.rank },
    })));
  }
}
