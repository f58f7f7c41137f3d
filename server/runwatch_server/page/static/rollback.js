// The dialog of a rollback: which states there are to go back to, and what each choice costs.
import { getJson, historyOf } from "./api.js";
import { h, moment } from "./dom.js";
import { count, counted } from "./numbers.js";
import { showAges } from "./time.js";

const SHOWN = 6;

/** Keeps the dialog's list and its words up to date. */
export function rollbackDialog(form, run) {
  const place = document.getElementById("checkpoints");
  const words = () => sayWhatIsLost(form);
  form.addEventListener("input", words);
  form.closest("dialog").addEventListener("opening", async () => {
    const onset = onsetInSight();
    if (!form.elements.before_step.value && onset !== null) form.elements.before_step.value = onset;
    words();
    const choices = await choicesOf(run);
    const chosen = new FormData(form).get("target");
    place.replaceChildren(...choices);
    showAges(place);
    (targetOf(form, chosen) ?? targetOf(form, "newest")).checked = true;
    words();
  });
}

/** The action that the dialog's fields stand for. */
export function rollbackOf({ target, before_step: before }) {
  const wrong = before === "" ? {} : { before_step: Number(before) };
  if (target === "newest") return { kind: "rollback", ...wrong };
  const toStep = Number(target);
  return { kind: "rollback", to_step: toStep, ...(wrong.before_step > toStep ? wrong : {}) };
}

/** Where it went wrong, as far as the page tells: the step that the address names, else the first
    onset of what fires, unless that is silence after the last step. */
function onsetInSight() {
  const named = new URLSearchParams(location.search).get("step");
  if (named !== null) return Number(named);
  const onsets = [...document.querySelectorAll("#alerts li:not(.is-info, .is-pending) [data-step]")]
    .map((one) => Number(one.dataset.step)).filter((step) => step < lastStep());
  return onsets.length ? Math.min(...onsets) : null;
}

async function choicesOf(run) {
  try {
    return (await reachable(run)).slice(0, SHOWN).map(choice);
  } catch (error) {
    return [h("p", { class: "hint" }, `The checkpoints are not known: ${error.message}`)];
  }
}

const targetOf = (form, value) => form.querySelector(`[name=target][value="${value}"]`);

async function checkpointsOf(run) {
  const found = [];
  for (let next = ""; next !== null;) {
    const part = await getJson(`/runs/${run}/checkpoints${next}`);
    found.push(...part.checkpoints);
    next = part.next_token && found.length < 10_000 ? `?next_token=${part.next_token}` : null;
  }
  return found;
}

/** The checkpoints on disk that no rollback and no later attempt has undone, newest first. */
async function reachable(run) {
  const [checkpoints, { stretches }] = await Promise.all([
    checkpointsOf(run), historyOf(run)]);
  const isUndone = (one) => stretches.some((later) =>
    (later.attempt - one.attempt || later.segment - one.segment) > 0 && later.first_step <= one.step);
  const bySteps = new Map();
  for (const one of checkpoints) if (one.step !== null && !isUndone(one)) bySteps.set(one.step, one);
  return [...bySteps.values()].sort((a, b) => b.step - a.step);
}

// What is not proved good can be chosen too, knowingly: it may be all there is.
function choice(found) {
  return h("label", { class: "inline" },
    h("input", { type: "radio", name: "target", value: found.step, "data-good": found.good ? "yes" : "no" }),
    h("span", {}, `Checkpoint after step ${count(found.step)} `,
      " ", h("span", { class: found.good ? "state state-good" : "state state-warn" }, found.good ? "good" : "not proved yet"),
      " ", h("span", { class: "hint" }, " · ", moment(found.at), ` · ${stepsInWords(lastStep() - found.step)} lost`)));
}

function sayWhatIsLost(form) {
  const { target, before_step: before } = Object.fromEntries(new FormData(form));
  const wrong = before === "" ? null : Number(before);
  document.getElementById("before-it").hidden = wrong === null;
  document.getElementById("undone-steps").textContent = undoneInWords(target, wrong);
  document.getElementById("left-out").textContent = leftOutInWords(target, wrong);
}

function undoneInWords(target, wrong) {
  const last = lastStep();
  if (target !== "newest") {
    const toStep = Number(target);
    return `${capital(rangeInWords(toStep + 1, last))}. They are trained again.`;
  }
  if (wrong !== null) return `At least ${rangeInWords(wrong, last)}. They are trained again.`;
  const good = document.querySelector("#checkpoints [data-good=yes]");
  const most = good ? `: at most ${rangeInWords(Number(good.value) + 1, last)}` : "";
  return `What was trained since that state${most}. It is trained again.`;
}

function leftOutInWords(target, wrong) {
  if (wrong === null) return "Nothing: no step is named at which it went wrong.";
  if (target !== "newest" && wrong <= Number(target)) {
    return `Nothing: step ${count(wrong)} lies before that state, which was trained on its batches.`;
  }
  return `The batches of step ${count(wrong)}.`;
}

function rangeInWords(first, last) {
  if (first > last) return "no step";
  const number = stepsInWords(last - first + 1);
  return first === last ? `step ${count(first)}` : `steps ${count(first)} to ${count(last)} (${number})`;
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

const stepsInWords = (number) => counted(Math.max(0, number), "step");

const lastStep = () => Number(document.getElementById("actions").dataset.lastStep);
