// The fields of a dialog that says how long what is kept; null: nothing is said.

const NAMES = ["raw_days", "evidence_days", "rollup_days"];

/** Fills them with what its opener holds: `data-ages`, and what holds otherwise, `data-inherited`. */
export function fillAges(form, opener) {
  const ages = JSON.parse(opener.dataset.ages ?? "{}");
  const inherited = JSON.parse(opener.dataset.inherited ?? "{}");
  for (const name of NAMES) {
    form.elements[name].value = ages[name] ?? "";
    form.elements[name].placeholder = placeholder(inherited[name]);
  }
}

/** What they say, as the interface takes it. */
export function agesOf(fields) {
  return Object.fromEntries(NAMES.map((name) => [name, fields[name] === "" ? null : Number(fields[name])]));
}

function placeholder(days) {
  if (days === undefined) return "";
  return days === 0 ? "0: for ever" : String(days);
}
