// Times as people say them. The exact one stands in the title.

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

/** "12 s", "3 min", "2 h 5 min": a duration in seconds, in at most two units. */
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const first = UNITS.findIndex(([size]) => whole >= size);
  if (first < 0) return "0 s";
  const [size, unit] = UNITS[first];
  const head = `${Math.floor(whole / size)} ${unit}`;
  const next = UNITS[first + 1];
  const rest = next && first < 2 ? Math.floor((whole % size) / next[0]) : 0;
  return rest ? `${head} ${rest} ${next[1]}` : head;
}

/** "1 min 30 s", "1 d 6 h": a duration in whole seconds, in all its units. */
export function inFull(seconds) {
  let left = Math.round(seconds);
  const parts = [];
  for (const [size, unit] of UNITS) {
    if (left >= size) parts.push(`${Math.floor(left / size)} ${unit}`);
    left %= size;
  }
  return parts.join(" ") || "0 s";
}

/** How long ago a time was, or in how long it will be. */
export function ago(date, now = Date.now()) {
  const seconds = (now - date.getTime()) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds >= 0 ? `${duration(seconds)} ago` : `in ${duration(-seconds)}`;
}

/** A time in the reader's own zone, to the second. */
export function exact(date) {
  return date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
}

/** Fills every <time data-ago> below a node. */
export function showAges(node) {
  for (const element of node.querySelectorAll("time[data-ago]")) {
    const date = new Date(element.dateTime);
    element.textContent = ago(date);
    element.title = exact(date);
  }
}
