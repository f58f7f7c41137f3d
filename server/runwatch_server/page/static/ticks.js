// Where an axis is labelled. Pure.
import { rate, short } from "./numbers.js";
import { inFull } from "./time.js";

const MOST = 5;
/** Values that differ by less, of their size, are one: ticks between them would read the same. */
const SAME = 1e-5;
/** Plotly finds no scale for a linear axis that is narrower. */
const NARROWEST = 1e-300;

/** The lowest and highest of what is drawn; null where nothing is. */
export function extentOf(loaded, isPositive) {
  let [low, high] = [Infinity, -Infinity];
  for (const { data } of loaded) {
    for (const values of [data.value, data.low ?? [], data.high ?? []]) {
      for (const value of values) {
        if (value === null || (isPositive && value <= 0)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
  }
  return low <= high ? [low, high] : null;
}

/** Shares of the values, at each end, that may lie beyond a linear axis, and their least number. */
const OUTLIERS = 0.05;
const FEW_OUTLIERS = 3;
/** So many values show what is usual. */
const LEAST_VALUES = 16;
/** Times the extent of the others by which outliers must exceed it, and up to which all stays. */
const FLATTENING = 8;
const KEPT = 3;

/** Where a few values would flatten all others on a linear axis: its `extent` without them, and of
    each stretch of them the farthest, as `beyond` (`{step, value, isUp}`). Null where none would. A
    series that begins far away comes from there, and one that stays there at its end went there:
    those are no outliers. */
export function clipOf(loaded) {
  const ups = loaded.map(({ data }) => data.high ?? data.value);
  const downs = loaded.map(({ data }) => data.low ?? data.value);
  const sides = [sideOf(ups, 1), sideOf(downs, -1)];
  if (!sides[0] || !sides[1]) return null;
  const usual = [-sides[1].edge, sides[0].edge];
  const span = usual[1] - usual[0] || 0.05 * Math.max(...usual.map(Math.abs)) || 1;
  const [up, down] = sides.map((side) => limitOf(side, span));
  if (up === null && down === null) return null;
  const isBeyond = (value) => (up !== null && value > up) || (down !== null && -value > down);
  const beyond = loaded.flatMap(({ data }, index) => [
    ...(up === null ? [] : peaks(data.steps, ups[index], up, 1)),
    ...(down === null ? [] : peaks(data.steps, downs[index], down, -1)),
  ]);
  const kept = [...ups, ...downs].flat().filter((value) => value !== null && !isBeyond(value));
  return { extent: [least(kept), -least(kept.map((value) => -value))], beyond };
}

const least = (values) => values.reduce((low, value) => Math.min(low, value), Infinity);

/** Of the values of one side, upward or (negated) downward: the farthest, the farthest without the
    few that may be outliers: at least where a series begins, and where it stays at its end. */
function sideOf(series, sign) {
  const held = series.map((values) => values.filter((value) => value !== null).map((value) => sign * value));
  const ends = held.flatMap((values) => (values.length ? [values[0], Math.min(...values.slice(-1 - FEW_OUTLIERS))] : []));
  const sorted = held.flat().sort((a, b) => a - b);
  if (sorted.length < LEAST_VALUES) return null;
  const most = Math.max(FEW_OUTLIERS, Math.floor(sorted.length * OUTLIERS));
  return { far: sorted.at(-1), edge: Math.max(sorted.at(-1 - most), ...ends) };
}

const limitOf = ({ far, edge }, span) => (far > edge + FLATTENING * span ? edge + KEPT * span : null);

/** The farthest of each stretch of values beyond a limit. */
function peaks(steps, values, limit, sign) {
  const found = [];
  let isInside = false;
  values.forEach((value, index) => {
    const isBeyond = value !== null && sign * value > limit;
    if (isBeyond && !(isInside && sign * found.at(-1).value >= sign * value)) {
      if (isInside) found.pop();
      found.push({ step: steps[index], value, isUp: sign > 0 });
    }
    isInside = isBeyond;
  });
  return found;
}

/** The range of an axis where Plotly cannot find it: where all values are as good as one, and where
    limits are drawn too, which may lie far beyond what is measured. */
export function rangeAround(low, high, isLog, hasLimits) {
  const [from, to] = isLog ? [Math.log10(low), Math.log10(high)] : [low, high];
  const isSame = isFlat(low, high) || (!isLog && high - low < NARROWEST);
  if (!isSame && !hasLimits) return {};
  const around = from && Math.max(Math.abs(from) * 0.4, NARROWEST);
  const span = (isSame ? 0 : to - from) || (isLog ? 1 : around || 1);
  return { range: [from - 0.15 * span, to + 0.4 * span] };
}

const isFlat = (low, high) => high - low <= SAME * Math.max(Math.abs(low), Math.abs(high));

/** Plotly's settings for a logarithmic axis: at most five labels, at powers of ten, or at 1, 2 and 5
    of each where there are few. */
export function ticksOfLog(low, high) {
  const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const inView = (mantissas, stride) => {
    const ticks = [];
    for (let power = from; power <= to; power += stride) {
      for (const mantissa of mantissas) ticks.push(mantissa * 10 ** power);
    }
    return ticks.filter((tick) => tick >= low * 0.9 && tick <= high * 1.1);
  };
  const choices = [inView([1, 1.5, 2, 3, 5, 7], 1), inView([1, 2, 5], 1), inView([1], 1)];
  const chosen = choices.find((ticks) => ticks.length <= MOST)
    ?? inView([1], Math.ceil((to - from) / MOST));
  const tickvals = isFlat(low, high) ? [low] : chosen.length ? chosen : [low, high];
  const tickText = (tick) => (tick >= 1e4 ? rate(tick) : short(tick));
  return { tickmode: "array", tickvals, ticktext: tickvals.map(tickText) };
}

/** Plotly's settings for a linear axis of values that are all below a thousandth: Plotly would
    write 0.0003 beside our 3e-4. */
export function ticksOfSmall(low, high) {
  const least = (high - low) / MOST;
  const power = 10 ** Math.floor(Math.log10(least));
  const stride = power * [1, 2, 5, 10].find((one) => one * power >= least * 0.999);
  const first = Math.ceil(low / stride);
  const tickvals = Array.from({ length: Math.floor(high / stride) - first + 1 }, (_, index) => (first + index) * stride);
  const ticktext = tickvals.map(short);
  if (new Set(ticktext).size < ticktext.length) return { tickformat: "~g" }; // too near for four digits
  return { tickmode: "array", tickvals, ticktext };
}

const STRIDES_S = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 172_800];

/** Plotly's settings for an axis of seconds: at most eight labels, at durations that people say. */
export function ticksOfTime(from, to) {
  const wanted = (to - from) / 8;
  const stride = STRIDES_S.find((one) => one >= wanted) ?? 604_800 * Math.ceil(wanted / 604_800);
  const first = Math.ceil(from / stride);
  const tickvals = Array.from({ length: Math.floor(to / stride) - first + 1 }, (_, index) => (first + index) * stride);
  return { tickmode: "array", tickvals, ticktext: tickvals.map(inFull) };
}
