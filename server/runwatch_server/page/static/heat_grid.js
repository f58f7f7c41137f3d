// The numbers behind a heat map: which colour each cell has, and where each layer first broke.
import { holesOf } from "./gaps.js";
import { median } from "./numbers.js";

const DECADES = 3;

/** A heat map as the service sends it, with `values` as arrays of numbers (NaN: nothing finite),
    `broken` as the counts of NaN and infinite values, rows first, as `gaps` all steps of the `range`
    asked for that have no values, and whether there is a cell without one. */
export function gridOf(answer, range) {
  const columns = answer.steps.length;
  const broken = new Uint32Array(answer.layers.length * columns);
  for (const [layer, bucket, count] of answer.nonfinite) broken[layer * columns + bucket] = count;
  // What is left of a broken value belongs to no median: of a gradient that is all NaN it is 0.
  const values = answer.values.map((row, layer) => Float64Array.from(row, (value, bucket) =>
    (broken[layer * columns + bucket] ? NaN : value ?? NaN)));
  const gaps = [...(answer.gaps ?? []), ...holesOf(answer.steps, answer.step_width, range)];
  const isHollow = gaps.length > 0
    || values.some((row, layer) => row.some((value, bucket) => Number.isNaN(value) && !broken[layer * columns + bucket]));
  return { ...answer, columns, values, broken, gaps, isHollow, onsets: onsetsOf(answer, broken, columns) };
}

/** The bucket in which each layer was first no finite number; -1: never. */
function onsetsOf(answer, broken, columns) {
  return answer.layers.map((_, layer) => {
    for (let bucket = 0; bucket < columns; bucket += 1) {
      if (broken[layer * columns + bucket]) return bucket;
    }
    return -1;
  });
}

/** How values become a place on the colour scale, 0 to 1. `size`: by their logarithm, over all
    layers. `own`: by how far each is from its own layer's median, three halvings or doublings each
    way, so that an onset stands out whatever the layers' sizes. `peers`: by how far each is from the
    median of its column, up to half and double, so that whoever differs from the others stands out. */
export function scaleOf(grid, mode) {
  if (mode === "own") return ownScale(grid);
  if (mode === "peers") return peersScale(grid);
  const finite = grid.values.flatMap((row) => Array.from(row)).filter((value) => Number.isFinite(value));
  const positive = finite.filter((value) => value > 0).sort((a, b) => a - b);
  if (!positive.length) return { place: () => () => 0, from: 0, to: 0, isLog: false };
  const to = positive[Math.floor((positive.length - 1) * 0.998)];
  const from = Math.max(positive[Math.floor((positive.length - 1) * 0.01)], to / 10 ** (2 * DECADES));
  if (positive.length < finite.length / 2 || to / from < 3) return linear(finite);
  const [low, high] = [Math.log(from), Math.log(to)];
  return {
    place: () => (value) => (value > 0 ? (Math.log(value) - low) / (high - low || 1) : 0),
    from, to, isLog: true,
  };
}

function linear(finite) {
  const sorted = finite.toSorted((a, b) => a - b);
  const [from, to] = [sorted[0], sorted[Math.floor((sorted.length - 1) * 0.998)]];
  return { place: () => (value) => (value - from) / (to - from || 1), from, to, isLog: false };
}

function ownScale(grid) {
  const middles = grid.values.map((row) => median(Array.from(row)));
  return {
    place: (layer) => {
      const middle = middles[layer];
      if (!(middle > 0)) return (value) => (value > 0 ? 1 : 0.5);
      return (value) => (value > 0 ? 0.5 + Math.log2(value / middle) / 6 : 0);
    },
    middles, from: 1 / 8, to: 8, isLog: true, isOwn: true,
  };
}

function peersScale(grid) {
  const middles = grid.steps.map((_, column) => median(grid.values.map((row) => row[column])));
  return {
    place: () => (value, column) => {
      const share = value / middles[column];
      return share > 0 ? 0.5 + Math.log2(share) / 2 : value < middles[column] ? 0 : 0.5;
    },
    peers: middles, from: 1 / 2, to: 2, isLog: true,
  };
}

/** The layers of a step, the worst first: what is no number, by when it broke, then by distance
    above its own median, then by size. `column`: a heat map of that one step; `grid`: the one in
    view, which knows the medians; `onsets`: where layers broke, by their names. */
export function worstLayers(column, grid, onsets) {
  const places = new Map(grid ? grid.layers.map((name, layer) => [name, layer]) : []);
  const broken = new Set(column.nonfinite.map(([layer]) => layer));
  return column.layers.map((name, layer) => {
    const value = column.values[layer]?.[0] ?? undefined;
    const place = places.get(name);
    const middle = place === undefined ? undefined : median(Array.from(grid.values[place]));
    return { name, value, isBroken: broken.has(layer), since: onsets.get(name),
      ratio: value > 0 && middle > 0 ? value / middle : undefined };
  }).filter((row) => row.isBroken || row.value !== undefined)
    .sort((a, b) => (b.isBroken - a.isBroken) || (a.isBroken && firstStep(a) - firstStep(b)) || 0
      || (b.ratio ?? 0) - (a.ratio ?? 0) || (b.value ?? 0) - (a.value ?? 0));
}

/** Where nothing is known of its onset, a layer comes last; two infinities differ by nothing. */
const firstStep = ({ since }) => since?.step ?? Number.MAX_SAFE_INTEGER;
