// A curve the size of a word: where a run's loss came from, and where it was no number.
import { counted, decode, short } from "./numbers.js";
import { svg, title } from "./svg.js";

const WIDTH = 132;
const HEIGHT = 30;
const PAD = 3;

/** The SVG of a curve `{metric, steps, values, nonfinite}`. */
export function sparkline(curve) {
  const values = curve.values.map(decode);
  const finite = values.filter((value) => Number.isFinite(value));
  const label = describe(curve, values, finite);
  const picture = svg("svg", {
    class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img",
    "aria-label": label,
  }, title(label));
  const place = placing(curve.steps, finite);
  picture.append(svg("path", { class: "spark-line", d: path(curve.steps, values, place) }));
  for (const [from, to] of spans(curve.nonfinite)) {
    const [x0, x1] = [place.x(curve.steps[from]), place.x(curve.steps[to])];
    picture.append(svg("path", { class: "spark-nan", d: `M${x0 - 2.5} 2l5 5m0-5l-5 5M${x0} 4.5H${x1}` }));
  }
  const last = values.at(-1);
  if (Number.isFinite(last)) {
    const end = { cx: place.x(curve.steps.at(-1)), cy: place.y(last), r: 2 };
    picture.append(svg("circle", { class: "spark-end", ...end }));
  }
  return picture;
}

function describe(curve, values, finite) {
  if (!finite.length) return `${curve.metric}: no finite value`;
  const from = short(finite[0]);
  const to = short(values.at(-1) ?? finite.at(-1));
  const broken = curve.nonfinite.length ? `; NaN or infinity in ${counted(curve.nonfinite.length, "place")}` : "";
  return `${curve.metric} from ${from} to ${to}${broken}`;
}

// Linear where the values are of one size, else by their logarithm: a spike must not flatten all.
function placing(steps, finite) {
  const low = Math.min(...finite);
  const high = Math.max(...finite);
  const scale = low > 0 && high / low > 20 ? Math.log : (value) => value;
  const [bottom, top] = [scale(low), scale(high)];
  const [first, last] = [steps[0], steps.at(-1)];
  const y = (value) => top === bottom ? HEIGHT / 2
    : HEIGHT - PAD - ((scale(value) - bottom) / (top - bottom)) * (HEIGHT - 2 * PAD);
  const x = (step) => last === first ? WIDTH / 2
    : PAD + ((step - first) / (last - first)) * (WIDTH - 2 * PAD);
  return { x: (step) => round(x(step)), y: (value) => round(y(value)) };
}

/** Indices that follow each other, as their first and last. */
function spans(indices) {
  const found = [];
  for (const index of indices) {
    if (found.length && index === found.at(-1)[1] + 1) found.at(-1)[1] = index;
    else found.push([index, index]);
  }
  return found;
}

function path(steps, values, place) {
  let drawn = "";
  let isDown = false;
  values.forEach((value, index) => {
    if (Number.isFinite(value)) {
      drawn += `${isDown ? "L" : "M"}${place.x(steps[index])} ${place.y(value)}`;
    }
    isDown = Number.isFinite(value);
  });
  return drawn;
}

const round = (value) => Math.round(value * 10) / 10;
