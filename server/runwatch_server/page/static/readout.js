// What a chart says in words: its values at a step, or why there are none.
import { h } from "./dom.js";
import { gapAt, gapWords } from "./gaps.js";
import { count, nearest, rate, short } from "./numbers.js";
import { colourOf } from "./palette.js";

const LONG = 48;

/** The values of a chart's series at a step, with the key of each; at the newest where `step` is
    null, and then without what is faint. `near`: steps by which a value may miss the step. */
export function readoutOf(loaded, step, near) {
  return loaded.filter((one) => !one.isFaint || step !== null)
    .map((one) => words(one, step, near)).filter(Boolean);
}

function words(one, step, near) {
  const { data } = one;
  if (!data.steps.length) return null;
  const gap = step === null ? undefined : gapAt(data.gaps ?? [], step);
  if (gap) return h("span", {}, `${brief(one.name)} `, h("i", {}, gapWords(gap)));
  const at = step === null ? data.steps.length - 1 : nearest(data.steps, step);
  if (step !== null && Math.abs(data.steps[at] - step) > Math.max(data.width, near)) return null;
  const mark = data.marks.find((found) => Math.abs(found.step - data.steps[at]) < 0.5);
  const band = data.low && data.value[at] !== null
    ? ` (${told(data.low[at])} – ${told(data.high[at])})` : "";
  return h("span", {}, key(one), `${brief(one.name)} `,
    data.value[at] === null ? null : h("b", {}, told(data.value[at])), band,
    mark ? h("i", {}, ` ${markWords(mark)}`) : null);
}

/** As the axis beside it is labelled: 404.8M, not 4.048e8. */
const told = (value) => (Math.abs(value) >= 1e7 && Math.abs(value) < 1e12 ? rate(value, 4) : short(value));

/** A name's end tells it from others: blocks.3.mlp.up, and the value behind it must stay in sight. */
function brief(name) {
  return name.length > LONG ? `…${name.slice(1 - LONG)}` : name;
}

function key(one) {
  const line = h("span", { class: `key${one.dash || one.isFaint ? " key-dash" : ""}` });
  line.style.color = colourOf(one);
  return line;
}

/** What is said where there is nothing to draw: nothing recorded is not the same as not readable. */
export function emptyWords(loaded) {
  const gap = loaded.flatMap((one) => one.data.gaps ?? [])[0];
  return gap ? `These ${gapWords(gap)}.` : "Nothing was recorded here.";
}

const markWords = (mark) => ({ nan: "NaN", up: "+∞", down: "−∞", some: `${count(mark.count)} NaN or ∞` })[mark.kind];
