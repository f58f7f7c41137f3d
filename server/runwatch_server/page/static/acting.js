// A person's hand on a run: the buttons, their dialogs, and the commands on their way.
import { api, getJson } from "./api.js";
import { demandName, onSend, openers } from "./dialogs.js";
import { h } from "./dom.js";
import { atMostEvery } from "./live.js";
import { proposals } from "./proposals.js";
import { renew } from "./refresh.js";

const CALM_MS = 10_000;
const MOVING_MS = 1_000;

const section = document.getElementById("acting");
const { run, name } = section.dataset;
const refresh = atMostEvery(250, () => renew(`/runs/${run}/actions`));

openers(section);
proposals(section, refresh);
document.addEventListener("runnews", refresh);
refresh();
(function keepLooking() {
  const isMoving = Number(document.getElementById("actions").dataset.moving) > 0;
  setTimeout(() => {
    if (!document.hidden) refresh();
    keepLooking();
  }, isMoving ? MOVING_MS : CALM_MS);
})();

for (const form of section.querySelectorAll("form[data-kind]")) {
  if (form.elements.confirm) demandName(form, name);
  onSend(form, async (fields) => {
    await api("POST", `/runs/${run}/commands`, {
      body: { action: actionOf(form.dataset.kind, fields), reason: fields.reason ?? "" },
      headers: { "Idempotency-Key": crypto.randomUUID() },
    });
    form.reset();
    await renew(`/runs/${run}/actions`);
  });
}

function actionOf(kind, fields) {
  if (kind === "lower_lr") return { kind, scale: Number(fields.scale) };
  if (kind === "detail") return { kind, steps: Number(fields.steps) };
  if (kind !== "rollback") return { kind };
  const { target, before_step: before } = fields;
  if (target === "newest") return { kind };
  return target === "before"
    ? { kind, before_step: Number(before) }
    : { kind, to_step: Number(target) };
}

const lower = section.querySelector("form[data-kind=lower_lr]");
lower?.querySelector("#lr-quick").addEventListener("click", (event) => {
  const { share } = event.target.dataset;
  if (share) lower.elements.scale.value = share;
});

const policy = section.querySelector("#act-policy form");
if (policy) {
  policy.closest("dialog").addEventListener("opening", ({ detail: opener }) => {
    policy.elements.policy.value = opener.dataset.policy;
  });
  onSend(policy, async (fields) => {
    await api("PATCH", `/runs/${run}`, { body: { policy: fields.policy } });
    await renew(`/runs/${run}/actions`);
  });
}

const rollback = section.querySelector("form[data-kind=rollback]");
if (rollback) {
  rollback.closest("dialog").addEventListener("opening", () => listCheckpoints());
  rollback.addEventListener("input", sayWhatIsLost);
  rollback.elements.before_step.addEventListener("focus", () => {
    rollback.elements.target.value = "before";
    sayWhatIsLost();
  });
}

const SHOWN = 6;

/** The checkpoints on disk, newest first; those that are not good cannot be chosen blindly. */
async function listCheckpoints() {
  const place = document.getElementById("checkpoints");
  const onset = new URLSearchParams(location.search).get("step");
  if (onset && !rollback.elements.before_step.value) rollback.elements.before_step.value = onset;
  sayWhatIsLost();
  const { checkpoints } = await getJson(`/runs/${run}/checkpoints`);
  const newest = checkpoints.filter(({ step }) => step !== null).reverse().slice(0, SHOWN);
  place.replaceChildren(...newest.map((found) => h("label", { class: "inline" },
    h("input", { type: "radio", name: "target", value: found.step }),
    h("span", {}, `The checkpoint after step ${found.step} `,
      h("span", { class: found.good ? "state state-good" : "state state-warn" }, found.good ? "good" : "not proved yet")))));
}

function sayWhatIsLost() {
  const place = document.getElementById("loss-of-steps");
  const { target, before_step: before } = Object.fromEntries(new FormData(rollback));
  const last = Number(document.getElementById("actions").dataset.lastStep);
  const step = target === "before" ? Number(before || NaN) - 1 : Number(target);
  if (!Number.isFinite(step)) {
    place.textContent = "What was trained since that state is lost, and is trained again.";
    return;
  }
  const lost = Math.max(0, last - step);
  const least = target === "before" ? "at least " : "";
  place.textContent = `The run is at step ${last}: ${least}${lost} steps are lost, and are trained again.`;
}
