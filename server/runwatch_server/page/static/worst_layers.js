// The layers that stand out at a step, as a table: not finite ones first, then by how far they are
// from what is usual for them.
import { h, refill } from "./dom.js";
import { standsOut, worstLayers } from "./heat_grid.js";
import { count, short } from "./numbers.js";
import { onsetsOf } from "./onsets.js";
import { Turns } from "./turns.js";

const SHOWN = 12;

export class WorstLayers {
  #turns = new Turns();
  #asked = {};

  /** `show(name)` is called for a layer that somebody chooses. */
  constructor(place, show) {
    Object.assign(this, { place, show });
    this.says = place.querySelector(".says");
  }

  /** `ask(from, to, points)`: the heat map of these steps; `grid`: what the map holds. */
  async list(step, grid, ask) {
    const isToBeShown = this.#turns.ask();
    try {
      const [column, onsets] = await Promise.all([ask(step, step, 1), this.#onsets(grid, ask)]);
      const worst = worstLayers(step, column, grid, onsets);
      const isCalm = worst.length > 0 && !worst.some(standsOut);
      if (!isToBeShown()) return;
      this.place.querySelector("h3").textContent = `${isCalm ? "Layers" : "Worst layers"} at step ${count(step)}`;
      refill(this.place.querySelector("tbody"), ...worst.slice(0, SHOWN).map((row) => this.#line(row)));
      this.says.textContent = isCalm ? "No layer stands out." : "";
      this.says.hidden = !isCalm && worst.length > 0;
    } catch (error) {
      if (!isToBeShown()) return;
      this.says.textContent = error.message;
      this.says.hidden = false;
    }
  }

  /** Asked for once a map, whatever steps of it are looked at. */
  #onsets(grid, ask) {
    if (this.#asked.grid !== grid) this.#asked = { grid, onsets: onsetsOf(grid, ask) };
    return this.#asked.onsets;
  }

  #line(row) {
    const value = row.isBroken ? h("span", { class: "broken" }, "NaN or ∞") : short(row.value);
    return h("tr", {},
      h("td", {}, h("button", { type: "button", class: "link mono", title: row.name, onclick: () => this.show(row.name) }, ...partsOf(row.name))),
      h("td", { class: "num" }, value),
      h("td", { class: "num" }, row.ratio === undefined ? "–" : `${short(row.ratio)} ×`),
      h("td", { class: "num" }, row.since ? spanOf(row.since) : "–"));
  }
}

/** A name that has no room in one line breaks after its dots, and not within a word. */
const partsOf = (name) => name.split(/(?<=\.)/).flatMap((part) => [part, h("wbr")]);

const spanOf = ({ step, width }) => (width === 1 ? count(step) : `${count(step)} – ${count(step + width - 1)}`);
