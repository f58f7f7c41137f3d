// How far a run had come at each step, in tokens or in seconds of training: summed up from what
// its trainer measured of each step.
import { loadSeries } from "./series.js";
import { lastAtMost } from "./numbers.js";

const POINTS = 1000;

/** The course of a side: converts a series's steps, and a range of tokens or seconds into steps.
    Throws where the run did not measure what is needed. */
export async function along(side, kind) {
  const times = await measured(side, "step_time");
  const rates = kind === "tokens" ? await measured(side, "tokens_per_s") : null;
  const steps = [];
  const sums = [];
  let sum = 0;
  times.steps.forEach((step, index) => {
    const seconds = (times.value[index] ?? 0) * times.width;
    const share = rates ? rates.value[lastAtMost(rates.steps, step)] ?? 0 : 1;
    steps.push(step - (times.width - 1) / 2);
    sums.push(sum);
    sum += seconds * share;
  });
  steps.push(steps.at(-1) + times.width);
  sums.push(sum);
  return {
    last: Math.ceil(sum),
    convert: (data) => ({ ...data, stretches: [], steps: data.steps.map((step) => between(step, steps, sums)),
      marks: data.marks.map((mark) => ({ ...mark, step: between(mark.step, steps, sums) })),
      gaps: data.gaps.map((gap) => ({ ...gap,
        first_step: between(gap.first_step, steps, sums),
        last_step: between(gap.last_step, steps, sums) })) }),
    stepsOf: (range) => range && range.map((at) => Math.max(0, Math.round(between(at, sums, steps)))),
  };
}

async function measured(side, metric) {
  const what = { metric, attempt: side.attempt ?? undefined };
  const isSent = side.metrics.includes(metric);
  const series = isSent ? await loadSeries(side.run, what, null, POINTS) : null;
  if (!series?.steps.length) {
    throw new Error(`${side.name} did not send ${metric}, so only steps can be compared.`);
  }
  return series;
}

/** The value at a place, straight between the two nearest known. */
function between(at, places, values) {
  const before = Math.max(0, Math.min(places.length - 2, lastAtMost(places, at)));
  const width = places[before + 1] - places[before];
  const share = width > 0 ? (at - places[before]) / width : 0;
  return values[before] + share * (values[before + 1] - values[before]);
}
