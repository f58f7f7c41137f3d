// The numbers behind a heat map: which colour each cell has, and where each layer first broke.
import { holesOf } from "./gaps.js";
import { lastAtMost, median } from "./numbers.js";

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
    layers. `own`: by how far each is from what is usual for its layer, three halvings or doublings
    each way, so that an onset stands out whatever the layers' sizes. `peers`: by how far each is from the
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
  return {
    place: (layer) => {
      const usual = usualOf(grid, layer);
      return (value, column) => {
        const middle = usual(column);
        if (!(middle > 0)) return value > 0 ? 1 : 0.5;
        return value > 0 ? 0.5 + Math.log2(value / middle) / 6 : 0;
      };
    },
    usual: (layer, column) => usualOf(grid, layer)(column),
    from: 1 / 8, to: 8, isLog: true, isOwn: true,
  };
}

/** Columns before one whose median is what is usual there; at least so many at the beginning. */
const TRAILING = 64;
const FEWEST = 8;

/** What is usual for a layer at a column: its median in the healthy past, if `grid.healthy` knows it
    by the layer's name; else its median over the columns before. A median over all columns would
    be that of the trouble, once it has lasted for half of them, and show the healthy past as strange. */
function usualOf(grid, layer) {
  const known = grid.healthy?.get(grid.layers[layer]);
  if (known !== undefined) return () => known;
  grid.usual ??= new Map();
  if (!grid.usual.has(layer)) grid.usual.set(layer, trailing(grid.values[layer]));
  const usual = grid.usual.get(layer);
  return (column) => usual[column];
}

function trailing(row) {
  const window = [];
  const insert = (value) => { if (Number.isFinite(value)) window.splice(lastAtMost(window, value) + 1, 0, value); };
  const remove = (value) => { if (Number.isFinite(value)) window.splice(lastAtMost(window, value), 1); };
  row.slice(0, FEWEST).forEach(insert);
  const usual = new Float64Array(row.length);
  row.forEach((_, column) => {
    if (column > FEWEST) insert(row[column - 1]);
    if (column > TRAILING) remove(row[column - 1 - TRAILING]);
    const half = window.length >> 1;
    usual[column] = !window.length ? NaN : window.length % 2 ? window[half] : (window[half - 1] + window[half]) / 2;
  });
  return usual;
}

/** The median of each layer over a heat map of healthy steps, by the layers' names; layers without
    values have none. */
export function mediansOf(grid) {
  return new Map(grid.layers.map((name, layer) => [name, median(Array.from(grid.values[layer]))])
    .filter(([, middle]) => middle !== undefined));
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

/** Times what is usual, or the inverse, from which a layer stands out. */
const APART = 3;

/** Whether a layer of a step is not finite, or far from what is usual for it. */
export const standsOut = ({ isBroken, ratio }) => isBroken || ratio >= APART || ratio <= 1 / APART;

/** The layers of a step, the worst first: what is no number, by when it broke, then by distance
    from what is usual for it, then by size. `column`: a heat map of that one step; `grid`: the one in
    view, which knows what is usual; `onsets`: where layers broke, by their names. */
export function worstLayers(step, column, grid, onsets) {
  const places = new Map(grid ? grid.layers.map((name, layer) => [name, layer]) : []);
  const broken = new Set(column.nonfinite.map(([layer]) => layer));
  return column.layers.map((name, layer) => {
    const value = column.values[layer]?.[0] ?? undefined;
    const place = places.get(name);
    const at = grid ? Math.max(0, lastAtMost(grid.steps, step)) : 0;
    const middle = place === undefined ? undefined : usualOf(grid, place)(at);
    const isBroken = broken.has(layer);
    return { name, value, isBroken, since: onsets.get(name),
      ratio: !isBroken && value >= 0 && middle > 0 ? value / middle : undefined };
  }).filter((row) => row.isBroken || row.value !== undefined)
    .sort((a, b) => (b.isBroken - a.isBroken) || (a.isBroken && firstStep(a) - firstStep(b)) || 0
      || distance(b) - distance(a) || (b.value ?? 0) - (a.value ?? 0));
}

/** A ratio of 0 is farther than any other; two of them differ by nothing. */
const distance = ({ ratio }) => (ratio === undefined ? 0 : Math.min(Math.abs(Math.log2(ratio)), 1e9));

/** Where nothing is known of its onset, a layer comes last; two infinities differ by nothing. */
const firstStep = ({ since }) => since?.step ?? Number.MAX_SAFE_INTEGER;
