// What an alert's rule judges, around the onset: the series of the segment that was judged, what
// the run goes by beside it, the rule's level, and from when to when it fired.
import { historyOf } from "./api.js";
import { Chart } from "./chart.js";
import { isOfSizes, loadSeries } from "./series.js";
import { StepAxis } from "./step_axis.js";
import { limitsOf } from "./thresholds.js";
import { otherSeries } from "./undone.js";

/** Steps to each side, and how much further where so many hold less than a curve: those that count
    samples, or a metric of an evaluation. */
const AROUND = 200;
const FURTHER = 32;
const FEWEST = 20;
/** Pixels of the lines at onset and firing. */
const WIDE = 2;

export class AlertCurves {
  #view = Object.assign(new EventTarget(), { smoothing: 0 });
  #axis = null;
  #stretches = [];
  #reach = AROUND;

  /** `section`: one figure a curve, and a legend. `facts`: of the alert, with its `curves`. */
  constructor(section, facts) {
    Object.assign(this, { section, facts });
    this.words = section.querySelector(".legend .words");
  }

  /** More steps may have come, or the alert is no longer what it was. */
  async refresh(facts) {
    this.facts = facts;
    try {
      const { stretches } = await historyOf(facts.run);
      if (!stretches.length) return;
      this.#stretches = stretches;
      if (!this.#axis) await this.#open();
      this.#axis.grow(...this.#around());
      this.#view.dispatchEvent(new Event("change"));
      this.words.textContent = this.#hasOthers() ? "Grey: what was trained before it, or in its place." : "";
    } catch (error) {
      this.words.textContent = error.message;
    }
  }

  async #open() {
    const { run, curves } = this.facts;
    this.#reach = await this.#reachOf(this.#what(curves[0]));
    this.#axis = new StepAxis(...this.#around());
    const figures = [...this.section.querySelectorAll(".chart")];
    this.charts = curves.map((curve, index) => new Chart(figures[index], this.#axis, this.#view, {
      run,
      isLog: isOfSizes(curve.name),
      series: [{ name: curve.name, what: this.#what(curve) }],
      rangeOf: () => this.#axis.range,
      extras: (range) => otherSeries(this.#stretches, this.#what(curve), range, this.facts),
      limits: (range, signal) => this.#limits(curve, range, signal),
      lines: () => this.#lines(),
      spans: () => this.#spans(),
    }));
  }

  #what({ name, layer }) {
    const { attempt, segment, rank } = this.facts;
    return { ...(layer === null ? { metric: name } : { layer, stat: name }), attempt, segment, rank };
  }

  /** How far to each side it takes to see a curve. */
  async #reachOf(what) {
    const [first, last] = this.#whole();
    const { onset } = this.facts;
    for (let reach = AROUND; ; reach *= FURTHER) {
      const range = [Math.max(first, onset - reach), Math.min(last, onset + reach)];
      if (range[0] === first && range[1] === last) return reach;
      const { steps } = await loadSeries(this.facts.run, what, range, 2 * AROUND);
      if (steps.length >= FEWEST) return reach;
    }
  }

  #whole() {
    return [Math.min(...this.#stretches.map((one) => one.first_step)),
      Math.max(...this.#stretches.map((one) => one.last_step))];
  }

  #around() {
    const [first, last] = this.#whole();
    const { onset, fires } = this.facts;
    return [Math.max(first, onset - this.#reach), Math.min(last, (fires ?? onset) + this.#reach)];
  }

  #hasOthers() {
    return otherSeries(this.#stretches, {}, this.#axis.range, this.facts).length > 0;
  }

  /** The rule's level, as far as the run still goes by what was judged; of a rule that was changed
      since, nobody knows the level by which it judged. Rules judge rank 0 but for those of ranks. */
  async #limits({ name, layer }, [from, to], signal) {
    const { run, rule, rank, attempt, segment } = this.facts;
    const judged = this.#stretches.filter((one) =>
      one.in_force && one.attempt === attempt && one.segment === segment);
    const end = Math.min(to, Math.max(...judged.map((one) => one.last_step)));
    if (!this.facts.is_rule_as_it_was || rank !== 0 || !(end > from)) return [];
    const found = await limitsOf(run, layer === null ? { metric: name } : { layer, stat: name }, [from, end], signal);
    const own = found.filter((one) => one.name === rule);
    if (own.length) this.section.querySelector(".legend .level").hidden = false;
    return own;
  }

  #lines() {
    const { onset, fires, severity } = this.facts;
    const began = { step: onset, look: severity, dash: "dot", width: WIDE };
    return fires === null ? [began] : [began, { step: fires, look: severity, width: WIDE }];
  }

  /** One that was over because a rollback undid its steps lasted to the last of them. */
  #spans() {
    const { fires, over, severity, attempt, segment } = this.facts;
    if (fires === null) return [];
    const own = this.#stretches.filter((one) => one.attempt === attempt && one.segment === segment);
    const end = over !== null && over >= fires ? over : Math.max(fires, ...own.map((one) => one.last_step));
    return [{ from: fires, to: end, look: severity }];
  }
}
