// Steps without values: those that are stored and cannot be read, and those of which nothing is
// stored. They are said in words, and hatched on a heat map: no colour of a scale may stand for them.
import { count } from "./numbers.js";
import { usualSpacing } from "./series.js";

const WHY = { lost: "their object is lost", corrupt: "they are damaged", late: "the object store does not answer" };
const STRIDE = 6;
const LEAST_PIXELS = 2;

/** Stretches of a range of steps of which no bucket tells, as `{first_step, last_step}`: where at
    least one is missing of those that usually follow each other. */
export function holesOf(steps, width, [first, last]) {
  if (!steps.length) return [{ first_step: first, last_step: last }];
  const usual = Math.max(width, usualSpacing(steps));
  const ends = [first - 1, ...steps.map((step) => step + usual - 1)];
  const starts = [...steps, last + 1];
  return starts.flatMap((start, index) => {
    const from = ends[index] + 1;
    return start - from >= usual ? [{ first_step: from, last_step: start - 1 }] : [];
  });
}

/** The gap that a step lies in; undefined: none. */
export function gapAt(gaps, step) {
  return gaps.find((gap) => step >= gap.first_step && step <= gap.last_step);
}

/** What is said of it, to stand in a sentence. */
export function gapWords(gap) {
  const steps = `steps ${count(gap.first_step)} to ${count(gap.last_step)}`;
  return gap.reason ? `${steps} cannot be read: ${WHY[gap.reason]}`
    : `${steps} have no values: not recorded, lost, or removed for their age`;
}

/** Takes from a picture what stands over gaps, however narrow they are; `x(step)`: where a step begins. */
export function clearGaps(context, gaps, x, height) {
  for (const gap of gaps) {
    const from = x(gap.first_step);
    context.clearRect(from, 0, Math.max(LEAST_PIXELS, x(gap.last_step + 1) - from), height);
  }
}

/** Hatches what is still empty of a picture. */
export function hatchEmpty(context, width, height, colour) {
  context.globalCompositeOperation = "destination-over";
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.beginPath();
  for (let at = -height; at < width; at += STRIDE) {
    context.moveTo(at, height);
    context.lineTo(at + height, 0);
  }
  context.stroke();
  context.globalCompositeOperation = "source-over";
}
