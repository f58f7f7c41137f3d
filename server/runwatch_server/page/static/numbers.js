// Numbers as the service sends them and as people read them. NaN and infinities travel as the
// strings "NaN", "+Inf", "-Inf"; null is "not recorded" and is nothing to draw.

const WORDS = { NaN: NaN, "+Inf": Infinity, "-Inf": -Infinity };

/** The number of a JSON value; undefined where nothing was recorded. */
export function decode(value) {
  if (value === null || value === undefined) return undefined;
  return typeof value === "number" ? value : WORDS[value];
}

/** A step or a count in groups of three by a narrow blank: 1 234 567. */
export function count(value) {
  return value === undefined || value === null ? "–" : signed(value, grouped(String(Math.round(Math.abs(value)))));
}

/** A count with its noun: 1 layer, 3 layers. */
export const counted = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** Four digits that count, and whole ones below ten millions: 0.0312, 12 345, 1.2e-7, NaN, +∞.
    As `runwatch.number_texts` writes them; a test holds both to one table. */
export function short(value) {
  if (value === undefined || value === null) return "–";
  if (Number.isNaN(value)) return "NaN";
  const size = Math.abs(value);
  if (size === Infinity) return value > 0 ? "+∞" : "−∞";
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) {
    const [mantissa, exponent] = size.toExponential(DIGITS - 1).split("e");
    return signed(value, `${Number(mantissa)}e${Number(exponent)}`);
  }
  const text = size >= 10 ** DIGITS ? String(Math.round(size)) : String(Number(size.toPrecision(DIGITS)));
  return signed(value, grouped(text));
}

const DIGITS = 4;
export const GROUP = "\u202f";
const signed = (value, text) => (value < 0 ? `−${text}` : text);
const grouped = (text) => text.replace(/^\d+/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, GROUP));

/** A rate with a suffix of thousands: 12.3k. */
export function rate(value, digits = 3) {
  if (value === undefined || value === null || !Number.isFinite(value)) return short(value);
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    const unit = letter === "k" ? 1e3 : size;
    if (Math.abs(value) >= size) return `${short(Number((value / unit).toPrecision(digits)))}${letter}`;
  }
  return short(value);
}

/** The middle of the finite values; undefined where there is none. */
export function median(values) {
  const finite = values.filter((value) => Number.isFinite(value)).sort((a, b) => a - b);
  if (finite.length === 0) return undefined;
  const half = finite.length >> 1;
  return finite.length % 2 ? finite[half] : (finite[half - 1] + finite[half]) / 2;
}

/** The index of the last element that is at most `wanted` in ascending numbers; -1: none is. */
export function lastAtMost(ascending, wanted) {
  let low = 0;
  let high = ascending.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ascending[middle] <= wanted) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The index of the element nearest to `wanted` in ascending numbers; -1 for none. */
export function nearest(ascending, wanted) {
  const before = lastAtMost(ascending, wanted);
  const after = before + 1;
  if (before < 0) return ascending.length ? 0 : -1;
  if (after >= ascending.length) return before;
  return wanted - ascending[before] <= ascending[after] - wanted ? before : after;
}
