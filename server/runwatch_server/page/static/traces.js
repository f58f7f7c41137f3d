// A series as Plotly's traces and shapes: a band, a line, and what is no number as what it is.
import { short } from "./numbers.js";
import { breaksOf, smooth } from "./series.js";

const SYMBOLS = { nan: "x-thin", some: "x-thin", up: "triangle-up", down: "triangle-down" };
const PLACES = { nan: 0.06, some: 0.06, up: 0.94, down: 0.06 };

const MOST_SPANS = 200;

/** All of one series. `look`: colour, dash, sign, smoothing (0 to 1), isFaint. */
export function tracesOf(series, look) {
  const isBreak = breaksOf(series);
  const traces = [];
  if (series.low && !look.isFaint) traces.push(band(series, look, isBreak));
  const isSmoothed = look.smoothing > 0 && !look.isFaint;
  traces.push(line(series.steps, series.value, look, isBreak, isSmoothed ? 0.3 : 1));
  if (isSmoothed) {
    const smoothed = smooth(series.value, look.smoothing, isBreak);
    traces.push(line(series.steps, smoothed, { ...look, width: 2 }, isBreak, 1));
  }
  if (series.marks.length) traces.push(marks(series.marks, look));
  if (look.sign) traces.push(signature(series, look));
  return traces;
}

/** A line's sign where it ends: lines of one chart are told apart without their colours. */
function signature(series, look) {
  const at = series.value.findLastIndex((value) => value !== null);
  return {
    type: "scatter", mode: "text", x: at < 0 ? [] : [series.steps[at]], y: at < 0 ? [] : [series.value[at]],
    text: [look.sign], textposition: "top center", cliponaxis: false,
    textfont: { color: look.colour, size: 12, weight: 700 }, hoverinfo: "skip", showlegend: false,
  };
}

function line(steps, values, look, isBreak, opacity) {
  const { xs, ys } = withGaps(steps, values, isBreak);
  const isSparse = !look.isFaint && values.filter((value) => value !== null).length <= 60;
  return {
    type: "scatter", x: xs, y: ys, mode: isSparse ? "lines+markers" : "lines", opacity,
    line: { color: look.colour, width: look.width ?? 1.5, dash: look.dash ?? "solid" },
    marker: { color: look.colour, size: 4 },
    connectgaps: false, hoverinfo: "skip", showlegend: false,
  };
}

function band(series, look, isBreak) {
  const x = [];
  const y = [];
  for (const piece of pieces(series, isBreak)) {
    if (x.length) { x.push(null); y.push(null); }
    x.push(...piece.map((at) => series.steps[at]), ...piece.toReversed().map((at) => series.steps[at]));
    y.push(...piece.map((at) => series.high[at]), ...piece.toReversed().map((at) => series.low[at]));
  }
  return {
    type: "scatter", x, y, mode: "none", fill: "toself", fillcolor: look.bandColour,
    hoverinfo: "skip", showlegend: false,
  };
}

/** Indices of the points that follow each other without a break. */
function pieces(series, isBreak) {
  const found = [];
  let current = null;
  series.value.forEach((value, index) => {
    if (value === null || (current && isBreak(index))) current = null;
    if (value === null) return;
    if (!current) found.push(current = []);
    current.push(index);
  });
  return found;
}

function withGaps(steps, values, isBreak) {
  const xs = [];
  const ys = [];
  values.forEach((value, index) => {
    if (isBreak(index)) { xs.push(steps[index]); ys.push(null); }
    xs.push(steps[index]);
    ys.push(value);
  });
  return { xs, ys };
}

// On an axis of their own, from 0 at the bottom to 1 at the top: they have no place on the other.
function marks(found, look) {
  return {
    type: "scatter", yaxis: "y2", mode: "markers", cliponaxis: false,
    x: found.map((mark) => mark.step), y: found.map((mark) => PLACES[mark.kind]),
    marker: {
      symbol: found.map((mark) => SYMBOLS[mark.kind]), size: 8, color: look.badColour,
      line: { color: look.badColour, width: 2 },
    },
    hoverinfo: "skip", showlegend: false,
  };
}

const MOST_ARROWS = 12;

/** What lies beyond the axis, as arrows with their values, the farthest ones first if there are
    many: a value that only an arrow shows must be read. */
export function arrows(beyond, colours) {
  const shown = beyond.toSorted((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, MOST_ARROWS);
  return {
    type: "scatter", yaxis: "y2", mode: "markers+text", cliponaxis: false,
    x: shown.map((one) => one.step), y: shown.map((one) => (one.isUp ? 0.97 : 0.03)),
    text: shown.map((one) => ` ${short(one.value)}`), textposition: "middle right",
    textfont: { color: colours.textStrong, size: 11 },
    marker: { symbol: shown.map((one) => (one.isUp ? "arrow-up" : "arrow-down")), size: 9, color: colours.textStrong },
    hoverinfo: "skip", showlegend: false,
  };
}

/** Where any of some series was no number, as shaded stretches of steps. */
export function brokenSpans(found, colour) {
  const wide = found.flatMap(({ marks, width }) => marks.map((mark) =>
    [mark.step - width / 2, mark.step + width / 2]));
  const spans = [];
  for (const [from, to] of wide.sort((a, b) => a[0] - b[0])) {
    const last = spans.at(-1);
    if (last && from <= last[1] + (to - from)) last[1] = Math.max(last[1], to);
    else spans.push([from, to]);
  }
  return spans.slice(0, MOST_SPANS).map(([from, to]) => stretch(from, to, colour));
}

/** Stretches of steps that are stored and could not be read. */
export function gapSpans(found, colour) {
  const gaps = found.flatMap((series) => series.gaps ?? []);
  const spans = new Set(gaps.map((gap) => `${gap.first_step - 0.5} ${gap.last_step + 0.5}`));
  return [...spans].slice(0, MOST_SPANS).map((span) => span.split(" ").map(Number))
    .map(([from, to]) => ({ ...stretch(from, to, colour), opacity: 0.18 }));
}

/** Steps shaded from the bottom of the plot to its top. */
export const stretch = (from, to, colour) => ({
  type: "rect", xref: "x", yref: "paper", x0: from, x1: to, y0: 0, y1: 1,
  fillcolor: colour, line: { width: 0 }, layer: "below",
});

/** An upright line through the whole plot, so many pixels wide. */
export const upright = (step, colour, dash, width = 1) => ({
  type: "line", xref: "x", yref: "paper", x0: step, x1: step, y0: 0, y1: 1,
  line: { color: colour, width, dash }, layer: "below",
});
