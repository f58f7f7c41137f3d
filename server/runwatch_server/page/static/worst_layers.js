// The layers that stand out at a step, as a table: not finite ones first, then by what they are of
// their own median.
import { getJson } from "./api.js";
import { h, refill } from "./dom.js";
import { worstLayers } from "./heat_grid.js";
import { count, short } from "./numbers.js";
import { Turns } from "./turns.js";

const SHOWN = 12;

export class WorstLayers {
  #turns = new Turns();

  /** `show(name)` is called for a layer that somebody chooses. */
  constructor(place, run, show) {
    Object.assign(this, { place, run, show });
    this.says = place.querySelector(".says");
  }

  /** `query`: of the heat map's column at the step; `grid`: what the map holds. */
  async list(step, query, grid) {
    const isToBeShown = this.#turns.ask();
    try {
      const worst = worstLayers(await getJson(`/runs/${this.run}/heatmap?${query}`), grid);
      if (!isToBeShown()) return;
      this.place.querySelector("h3").textContent = `Worst layers at step ${count(step)}`;
      refill(this.place.querySelector("tbody"), ...worst.slice(0, SHOWN).map((row) => this.#line(row)));
      this.says.hidden = worst.length > 0;
    } catch (error) {
      if (!isToBeShown()) return;
      this.says.textContent = error.message;
      this.says.hidden = false;
    }
  }

  #line(row) {
    const value = row.isBroken ? h("span", { class: "broken" }, "NaN or ∞") : short(row.value);
    return h("tr", {},
      h("td", {}, h("button", { type: "button", class: "link mono", title: row.name, onclick: () => this.show(row.name) }, row.name)),
      h("td", { class: "num" }, value),
      h("td", { class: "num" }, row.ratio === undefined ? "–" : `${short(row.ratio)} ×`),
      h("td", { class: "num" }, Number.isFinite(row.since) ? count(row.since) : "–"));
  }
}
