// Stretches of steps beside those that a chart is about, as faint series of their own.

const MOST = 6;

/** Those in a range of steps that a rollback or a later attempt undid, the newest ones. `what`:
    `{metric}` or `{layer, stat}`. */
export function undoneSeries(stretches, what, range) {
  return within(stretches, range, (one) => !one.in_force)
    .map((one) => faint(one, `undone (attempt ${one.attempt}${one.segment ? `.${one.segment}` : ""})`, what));
}

/** Those in a range of steps that the run goes by and that are not of a segment: what was trained
    before it, and what took its place. */
export function otherSeries(stretches, what, range, { attempt, segment }) {
  const isOther = (one) => one.in_force && (one.attempt !== attempt || one.segment !== segment);
  return within(stretches, range, isOther).map((one) =>
    faint(one, `attempt ${one.attempt}${one.segment ? `, after rollback ${one.segment}` : ""}`, what));
}

const within = (stretches, [from, to], isWanted) => stretches
  .filter((one) => isWanted(one) && one.last_step >= from && one.first_step <= to).slice(-MOST);

const faint = (one, name, what) => ({
  name, isFaint: true, dash: "dot",
  what: { ...what, attempt: one.attempt, segment: one.segment },
  within: [one.first_step, one.last_step],
});
