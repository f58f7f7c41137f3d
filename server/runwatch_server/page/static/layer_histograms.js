// How large the elements of a layer were at a step: its histograms by powers of two, where some were
// taken.
import { getJson } from "./api.js";
import { h } from "./dom.js";
import { count, short } from "./numbers.js";
import { svg, title } from "./svg.js";

const KINDS = { gradients: "Gradients", weights: "Weights", activations: "Activations" };
const WIDTH = 420;
const HEIGHT = 96;
const FLOOR = 16;
const LEAST_BINS = 12;

export class LayerHistograms {
  #asked = null;

  constructor(place, run) {
    this.place = place;
    this.run = run;
  }

  /** The newest of each kind at or before a step; `null`: the newest of all. `stat` tells whether the
      name is a layer's or a module's. */
  async show(layer, stat, step, rank = 0) {
    this.#asked?.abort();
    const asked = this.#asked = new AbortController();
    const kinds = stat.startsWith("act_") ? ["activations"] : ["gradients", "weights"];
    const query = new URLSearchParams({ layer, rank: String(rank), ...(step === null ? {} : { step: String(step) }) });
    try {
      const found = await Promise.all(kinds.map((kind) =>
        getJson(`/runs/${this.run}/histograms?kind=${kind}&${query}`, asked)));
      this.#draw(found.filter((one) => one.histograms.length));
    } catch (error) {
      if (error.name !== "AbortError") this.place.replaceChildren(h("p", { class: "hint" }, error.message));
    }
  }

  #draw(found) {
    this.place.hidden = false;
    this.place.replaceChildren(...(found.length ? found.map(figure) : [h("p", { class: "hint" },
      "No histogram of it was taken up to this step: ", h("code", {}, "attach(histograms=100)"),
      " takes them every hundred steps, the action “Look closely” now.")]));
  }
}

function figure({ kind, lowest_exponent: lowest, histograms: [one] }) {
  return h("figure", { class: "histogram" },
    h("figcaption", {}, h("b", {}, KINDS[kind]), ` at step ${count(one.step)}`, h("span", { class: "hint" }, ` ${inWords(one)}`)),
    picture(one, lowest, KINDS[kind]));
}

/** Bars over powers of two; what is zero at the left and what is no finite number at the right. */
function picture(one, lowest, name) {
  const { from, to } = held(one.counts);
  const bars = one.counts.slice(from, to + 1).map((number, index) => ({
    number, look: "", words: `2^${lowest + from + index} to 2^${lowest + from + index + 1}`,
    label: (lowest + from + index) % 4 === 0 ? `2${raised(lowest + from + index)}` : "",
  }));
  if (one.zeros) bars.unshift({ number: one.zeros, look: "zero", words: "zero", label: "0" });
  if (one.nonfinite) bars.push({ number: one.nonfinite, look: "is-broken", words: "NaN or infinity", label: "NaN" });
  const most = Math.max(1, ...bars.map((bar) => bar.number));
  const width = WIDTH / bars.length;
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${name}: ${inWords(one)}` },
    svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - FLOOR, y2: HEIGHT - FLOOR, class: "lane-line" }),
    ...bars.flatMap((bar, index) => {
      const height = bar.number ? Math.max(1, (bar.number / most) * (HEIGHT - FLOOR - 4)) : 0;
      const at = index * width;
      return [
        svg("rect", { x: at + 0.5, y: HEIGHT - FLOOR - height, width: width - 1, height, class: `bin ${bar.look}` },
          title(`${bar.words}: ${count(bar.number)}`)),
        svg("text", { x: at + width / 2, y: HEIGHT - 4, class: "bin-label" }, bar.label),
      ];
    }));
}

/** The bins that hold anything, and around them as many as make a picture. */
function held(counts) {
  const full = counts.flatMap((number, index) => (number ? [index] : []));
  const [low, high] = full.length ? [full[0], full.at(-1)] : [counts.length >> 1, counts.length >> 1];
  const more = Math.max(1, Math.ceil((LEAST_BINS - (high - low + 1)) / 2));
  return { from: Math.max(0, low - more), to: Math.min(counts.length - 1, high + more) };
}

function inWords(one) {
  const inside = one.counts.reduce((sum, number) => sum + number, 0) + one.below + one.above;
  const all = inside + one.zeros + one.nonfinite;
  const parts = [`${count(all)} elements`];
  if (one.zeros) parts.push(`${short((100 * one.zeros) / all)} % zero`);
  if (one.nonfinite) parts.push(`${count(one.nonfinite)} NaN or ∞`);
  if (one.below) parts.push(`${count(one.below)} smaller than shown`);
  if (one.above) parts.push(`${count(one.above)} larger than shown`);
  return parts.join(", ");
}

const raised = (exponent) => String(exponent).replace(/[-\d]/g, (sign) => "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"["0123456789-".indexOf(sign)]);
