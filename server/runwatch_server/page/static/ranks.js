// Ranks side by side: one metric of each, and who is behind.
import { Chart } from "./chart.js";
import { h } from "./dom.js";
import { count, counted } from "./numbers.js";
import { RankMap } from "./rank_map.js";

const MOST = 8;

export class Ranks {
  constructor(section, axis, view, run) {
    this.section = section;
    this.metric = section.querySelector("select");
    this.ranks = [];
    this.chosen = null;
    this.chart = new Chart(section.querySelector(".chart"), axis, view, { run, series: [] });
    const place = section.querySelector(".rank-map");
    this.map = place && new RankMap(place, axis, run, (rank) => this.#choose(rank));
    this.metric.addEventListener("change", () => this.#draw());
  }

  /** `ranks`: `{rank, last_step, host}` of the current attempt. */
  tell(ranks) {
    const isNew = ranks.length !== this.ranks.length;
    this.ranks = ranks;
    if (this.map) this.map.hosts = new Map(ranks.map((one) => [one.rank, one.host]));
    this.#list();
    if (isNew) return this.#draw();
    this.map?.refresh();
    return this.chart.refresh();
  }

  /** All where they are few, else those behind. */
  #list() {
    const furthest = Math.max(...this.ranks.map((one) => one.last_step));
    const isLong = this.ranks.length > MOST;
    const shown = isLong ? behind(this.ranks).slice(0, MOST) : this.ranks;
    const level = this.ranks.filter((one) => one.last_step === furthest).length;
    this.section.querySelector("tbody").replaceChildren(...shown.map((one) => h("tr", {},
      h("td", { class: "num" }, String(one.rank)),
      h("td", { class: "num" }, count(one.last_step)),
      h("td", { class: "num" }, one.last_step === furthest ? "–" : counted(furthest - one.last_step, "step")),
      h("td", { dir: "auto" }, one.host ?? "–"))));
    this.section.querySelector("table").hidden = !shown.length;
    const rest = this.ranks.length - level - shown.length;
    this.section.querySelector(".level").textContent = !isLong ? ""
      : `${count(level)} of ${count(this.ranks.length)} ranks are at step ${count(furthest)}${rest > 0 ? `; ${count(rest)} more ${rest === 1 ? "is" : "are"} behind` : ""}.`;
  }

  #choose(rank) {
    this.chosen = rank;
    this.#draw();
  }

  /** All where they are few, else the first, the chosen one, and those furthest behind. */
  #draw() {
    const first = this.ranks[0];
    const own = this.ranks.find((one) => one.rank === this.chosen);
    const isLong = this.ranks.length > MOST;
    const others = isLong ? [own, ...behind(this.ranks)].filter(Boolean) : this.ranks;
    const drawn = [...new Set([first, ...others])].slice(0, MOST);
    const metric = this.metric.value;
    this.map?.show(metric);
    this.section.querySelector(".chart h3").textContent = isLong
      ? `${metric} of rank ${first.rank}${own ? `, rank ${own.rank}` : ""} and those furthest behind` : `${metric} of each rank`;
    const late = new Set(behind(this.ranks));
    this.chart.replace(drawn.sort((a, b) => a.rank - b.rank).map((one) => ({
      name: `rank ${one.rank}`, sign: late.has(one) ? `rank ${one.rank}` : undefined,
      what: { metric, rank: one.rank },
    })));
  }
}

/** Those that have not come as far as the others, the furthest behind first. */
function behind(ranks) {
  const furthest = Math.max(...ranks.map((one) => one.last_step));
  return ranks.filter((one) => one.last_step < furthest)
    .sort((a, b) => a.last_step - b.last_step || a.rank - b.rank);
}
