// The levels by which rules judge a series, as series to be drawn over it.
import { getJson } from "./api.js";

/** Asks for the levels of a run's rules over a range of steps. `what`: `{metric}` or
    `{layer, stat}`. */
export async function limitsOf(run, what, [from, to], signal) {
  const query = new URLSearchParams({ ...what, from: String(Math.floor(from)), to: String(Math.ceil(to)) });
  const found = await getJson(`/runs/${run}/thresholds?${query}`, { signal });
  return found.thresholds.map((one) => ({
    name: one.rule, isLimit: true, isFaint: true, dash: "dash", severity: one.severity,
    direction: one.direction,
    data: { steps: one.steps, value: one.levels, low: null, high: null, marks: [], stretches: [], width: 1 },
  }));
}
