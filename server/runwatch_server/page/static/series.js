// One series as the service sends it, made ready to be drawn.
import { getJson } from "./api.js";
import { decode } from "./numbers.js";

const SIZES = /norm|absmax|ratio/;
const KINDS = { NaN: "nan", "+Inf": "up", "-Inf": "down" };

/** Whether values of this name are sizes, which differ by orders of magnitude. */
export function isOfSizes(name) {
  return SIZES.test(name);
}

/** Asks for a series of a run. `what`: `{metric}` or `{layer, stat}`, with `rank`, `attempt` and
    `segment` where they are not the run's own; `range`: first and last step, null for all. */
export async function loadSeries(run, what, range, points, signal) {
  const query = new URLSearchParams({ points: String(points) });
  for (const [name, value] of Object.entries(what)) {
    if (value !== undefined && value !== null) query.set(name, String(value));
  }
  if (range) {
    query.set("from", String(range[0]));
    query.set("to", String(range[1]));
  }
  return ready(await getJson(`/runs/${run}/series?${query}`, { signal }));
}

/** `steps`, `value`, `low` and `high` (null where there is no finite value, and where elements that
    are no numbers were left out of a step's, or of each step's of a bucket), and `marks`: what was no finite number, with its step, kind (nan, up, down, or some: the server counted several in a
    bucket) and count. `gaps`: steps that are stored and could not be read. */
export function ready(answer) {
  const isRaw = answer.values !== undefined;
  const middle = isRaw ? 0 : (answer.step_width - 1) / 2;
  const leftOut = new Set(answer.left_out ?? bucketsLeftOut(answer));
  const series = {
    name: answer.name,
    width: answer.step_width,
    stretches: answer.stretches,
    steps: answer.steps.map((step) => step + middle),
    value: (isRaw ? answer.values : answer.mean)
      .map((value, index) => (leftOut.has(answer.steps[index]) ? null : finite(value))),
    low: isRaw ? null : answer.min.map(finite),
    high: isRaw ? null : answer.max.map(finite),
    marks: [],
    gaps: answer.gaps ?? [],
  };
  answer.steps.forEach((step, index) => {
    const kind = isRaw && (KINDS[answer.values[index]] ?? (leftOut.has(step) ? "nan" : null));
    if (kind) {
      series.marks.push({ step, kind, count: 1 });
    } else if (!isRaw && answer.nonfinite[index] > 0) {
      series.marks.push({ step: step + middle, kind: "some", count: answer.nonfinite[index] });
    }
  });
  return series;
}

/** The buckets of a layer's stat in which nothing is whole: what is left of a gradient that is all
    NaN is a norm of 0. */
function bucketsLeftOut({ layer, steps, count, nonfinite, max }) {
  if (!layer || !nonfinite) return [];
  return steps.filter((_, index) =>
    nonfinite[index] > 0 && nonfinite[index] >= count[index] && decode(max[index]) === 0);
}

function finite(value) {
  const number = decode(value);
  return Number.isFinite(number) ? number : null;
}

/** Exponentially weighted mean, without the pull to zero of its beginning; passes over gaps, and
    starts anew where `isBreak(index)` says that another stretch begins. */
export function smooth(values, weight, isBreak = () => false) {
  let sum = 0;
  let share = 0;
  return values.map((value, index) => {
    if (isBreak(index)) sum = share = 0;
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    share = weight * share + (1 - weight);
    return sum / share;
  });
}

/** Whether a line must not be drawn from the point before an index to that at it: another attempt
    or segment begins there, steps between could not be read, or far more lie there than usual. */
export function breaksOf(series) {
  const gaps = (series.gaps ?? []).map((gap) => gap.first_step);
  const starts = [...series.stretches.slice(1).map((stretch) => stretch.first_step), ...gaps];
  const spacing = usualSpacing(series.steps);
  return (index) => {
    if (index === 0) return false;
    const [before, at] = [series.steps[index - 1], series.steps[index]];
    return at - before > 6 * spacing || starts.some((start) => before < start && at >= start);
  };
}

/** How many steps most neighbours are apart; 1 where there are none. */
export function usualSpacing(steps) {
  const spacings = steps.slice(1).map((step, index) => step - steps[index]).sort((a, b) => a - b);
  return spacings.length ? spacings[spacings.length >> 1] : 1;
}
