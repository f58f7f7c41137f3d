// Events, alerts, commands and stretches of steps, as one story: what is a mark, what is a bar, in
// which lane, and in which words. Pure.
import { count, short } from "./numbers.js";

const LANES = [
  ["attempts", "Attempts"], ["alerts", "Alerts"], ["actions", "Actions"],
  ["checkpoints", "Checkpoints", "Saved"], ["phases", "Phases"], ["gaps", "Gaps"],
];

const MOST_ALERT_LANES = 5;
/** What is good is told with its checkpoint, and hosts stand beside the ranks. */
const TOLD_ELSEWHERE = ["checkpoint_good", "host"];

/** `marks` oldest first, `bars` and `stretches`. */
export function storyOf({ events, alerts, commands, history, last }) {
  const good = new Set(events.filter((event) => event.kind === "checkpoint_good").map(keyOf));
  const told = events.filter((event) => !TOLD_ELSEWHERE.includes(event.kind) && event.rank === 0);
  const grouped = together(alerts);
  const marks = [
    ...told.map((event) => markOf(event, good)),
    ...commands.map(commandMark).filter(Boolean),
    ...grouped.flatMap(alertMarks),
  ].sort((a, b) => (a.step ?? 0) - (b.step ?? 0));
  const bars = [
    ...history.stretches.map(stretchBar),
    ...grouped.filter((alert) => alert.state !== "pending").map((alert) => alertBar(alert, last)),
  ];
  return { marks, bars };
}

/** Lanes with something in them; what they hold is in the order of steps. Alerts that overlap get
    lanes of their own, as far as that stays readable; the last of them is shared by the rest. */
export function lanesOf({ marks = [], bars = [] }) {
  return LANES.flatMap(([key, name, shortName = name]) => {
    const lane = {
      name, shortName,
      bars: bars.filter((bar) => bar.lane === key),
      marks: marks.filter((mark) => mark.lane === key && mark.shape && mark.step !== null),
    };
    return key === "alerts" ? spread(lane) : [lane];
  }).filter((lane) => lane.bars.length || lane.marks.length);
}

function spread(lane) {
  const lanes = [];
  for (const bar of lane.bars.toSorted((a, b) => a.from - b.from)) {
    const free = lanes.find((one) => one.bars.every(({ to }) => to < bar.from)) ?? lanes[MOST_ALERT_LANES - 1];
    if (free) free.bars.push(bar);
    else lanes.push({ ...lane, ...(lanes.length ? { name: "", shortName: "" } : {}), bars: [bar], marks: [] });
  }
  return lanes;
}

function markOf(event, good) {
  const base = { step: event.step, at: event.at };
  const { detail } = event;
  switch (event.kind) {
    case "checkpoint": {
      const isGood = good.has(keyOf(event));
      return detail.error
        ? { ...base, lane: "checkpoints", shape: "cross", look: "bad", words: `checkpoint failed: ${detail.error}` }
        : { ...base, lane: "checkpoints", shape: "square", look: isGood ? "good" : "open",
          words: `checkpoint${isGood ? ", found good" : ""}${detail.path ? `: ${detail.path}` : ""}` };
    }
    case "rollback":
      return { ...base, lane: "actions", shape: "diamond", look: "warn", to: detail.rolled_back_to ?? detail.to_step,
        words: `rolled back${detail.rolled_back_to === undefined ? "" : ` to step ${count(detail.rolled_back_to)}`}${reason(detail)}` };
    case "lr_scale":
      return { ...base, lane: "actions", shape: "down", look: "info",
        words: `learning rate at ${short(detail.lr_scale)} of its schedule${reason(detail)}` };
    case "phase":
      return { ...base, lane: "phases", shape: detail.edge === "end" ? "" : "tick", look: "quiet",
        words: `${detail.phase} ${detail.edge === "end" ? "ends" : "begins"}` };
    case "diagnostic_bundle":
      return { ...base, lane: "actions", shape: "square", look: detail.error ? "bad" : "info",
        words: detail.error ? `no diagnostic bundle of step ${count(detail.of_step)}: ${detail.error}`
          : `diagnostic bundle of step ${count(detail.of_step)}: runwatch replay ${detail.path}` };
    case "gap":
      return { ...base, lane: "gaps", shape: "cross", look: "warn", words: `gap: ${inWords(detail)}` };
    case "stall":
      return { ...base, lane: "actions", shape: "tick", look: "warn",
        words: `stands still for ${short(detail.stalled_s)} s: ${detail.place}` };
    case "unreadable":
      return { ...base, lane: "gaps", shape: "cross", look: "bad",
        words: `stored and not readable (${detail.reason}): steps ${count(event.step)} to ${count(detail.last_step)}` };
    default:
      return { ...base, lane: "actions", shape: "tick", look: "quiet",
        words: `${event.kind.replaceAll("_", " ")}${Object.keys(detail).length ? `: ${inWords(detail)}` : ""}` };
  }
}

function commandMark(command) {
  const kind = command.action.kind.replaceAll("_", " ");
  if (["applied"].includes(command.state) && ["rollback", "lower_lr", "checkpoint"].includes(command.action.kind)) {
    return null;  // the trainer's own event tells it, at its step
  }
  const look = { failed: "bad", rejected: "bad", expired: "quiet", cancelled: "quiet", applied: "info" }[command.state] ?? "open";
  return { step: command.ended_step, at: command.ended_at ?? command.created_at, lane: "actions",
    shape: "triangle", look, words: `${kind} ${standing(command)}${command.reason ? ` (${command.reason})` : ""}` };
}

/** In the words of command_travel.py: a person rejects what a rule proposed, a trainer refuses, the service gives a reason. */
function standing({ state, automatic, alert_id: alert, detail }) {
  if (state === "rejected") return "refused";
  if (state !== "cancelled") return state;
  return alert && !automatic && !detail?.reason ? "rejected" : "withdrawn";
}

const ENDINGS = {
  settled_worse: "did not recover",
  run_ended: "was still open when the run ended", attempt_ended: "was still open when a newer attempt began",
  rule_changed: "closed: its rule was changed",
};

/** One for those that say the same of several ranks, with a `name` that says of which. */
function together(alerts) {
  const groups = new Map();
  for (const alert of alerts.toSorted((a, b) => a.rank - b.rank)) {
    const key = JSON.stringify([alert.rule, alert.severity, alert.state, alert.attempt, alert.segment,
      alert.onset_step, alert.firing_step, alert.resolved_step, { ...alert.labels, rank: "" }]);
    groups.set(key, [...(groups.get(key) ?? []), alert]);
  }
  return [...groups.values()].map((group) => {
    const [first] = group;
    const ranks = group.length > 1 ? `, ${group.length} ranks` : first.rank > 0 ? `, rank ${first.rank}` : "";
    return { ...first, name: `${first.rule}${ranks}` };
  });
}

function alertMarks(alert) {
  const href = `/alerts/${encodeURIComponent(alert.id)}`;
  const base = { lane: "alerts", shape: "", look: alert.severity, href };
  const found = [];
  if (alert.firing_at) {
    found.push({ ...base, step: alert.firing_step ?? alert.onset_step, at: alert.firing_at,
      words: `${alert.name} fires: ${alert.summary}` });
  }
  if (alert.resolved_at) {
    found.push({ ...base, step: alert.resolved_step, at: alert.resolved_at,
      words: `${alert.name} ${ENDINGS[alert.resolution] ?? "resolved"}${alert.outcome ? `: ${alert.outcome}` : ""}` });
  }
  return found;
}

function alertBar(alert, last) {
  return {
    lane: "alerts", look: alert.severity, from: alert.onset_step, to: alert.resolved_step ?? last,
    label: alert.name, href: `/alerts/${encodeURIComponent(alert.id)}`,
    words: `${alert.severity}: ${alert.name} since step ${count(alert.onset_step)}. ${alert.summary}`,
  };
}

function stretchBar(stretch) {
  const name = stretch.segment ? `${stretch.attempt}, after rollback` : `attempt ${stretch.attempt}`;
  return {
    lane: "attempts", from: stretch.first_step, to: stretch.last_step,
    look: stretch.in_force ? `attempt-${(stretch.attempt + stretch.segment) % 2}` : "undone",
    isThin: !stretch.in_force, label: stretch.in_force ? name : "",
    words: `attempt ${stretch.attempt}${stretch.segment ? `, after rollback ${stretch.segment}` : ""}: `
      + `steps ${count(stretch.first_step)} to ${count(stretch.last_step)}${stretch.in_force ? "" : " (undone)"}`,
  };
}

// A checkpoint is found good later, by the same path, or else under the same step.
const keyOf = (event) => `${event.attempt} ${event.detail.path ?? event.detail.of_step ?? event.step}`;
const reason = (detail) => (detail.reason ? ` (${detail.reason})` : "");
const inWords = (detail) => Object.entries(detail).map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`).join(", ");
