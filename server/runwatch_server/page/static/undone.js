// Stretches of steps that a rollback or a later attempt undid, as faint series of their own.

const MOST = 6;

/** Those in a range of steps, the newest ones. `what`: `{metric}` or `{layer, stat}`. */
export function undoneSeries(stretches, what, [from, to]) {
  return stretches
    .filter((one) => !one.in_force && one.last_step >= from && one.first_step <= to)
    .slice(-MOST)
    .map((one) => ({
      name: `undone (attempt ${one.attempt}${one.segment ? `.${one.segment}` : ""})`,
      isFaint: true, dash: "dot",
      what: { ...what, attempt: one.attempt, segment: one.segment },
      within: [one.first_step, one.last_step],
    }));
}
