// A person's hand on a run: the buttons, their dialogs, and the commands on their way.
import { api } from "./api.js";
import { demandName, holdWhileAway, onSend, openers } from "./dialogs.js";
import { atMostEvery } from "./live.js";
import { proposals } from "./proposals.js";
import { renew } from "./refresh.js";
import { rollbackDialog, rollbackOf } from "./rollback.js";

const CALM_MS = 10_000;
const MOVING_MS = 1_000;

const section = document.getElementById("acting");
const { run, name } = section.dataset;
const refresh = atMostEvery(250, async () => {
  const isAnswered = await renew(`/runs/${run}/actions`);
  document.getElementById("actions").inert = !isAnswered;
  document.getElementById("unanswered").hidden = isAnswered;
  holdWhileAway(section, !isAnswered);
});

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
  return kind === "rollback" ? rollbackOf(fields) : { kind };
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
if (rollback) rollbackDialog(rollback, run);
