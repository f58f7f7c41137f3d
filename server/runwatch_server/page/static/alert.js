// An alert's card: its curves, acknowledge, silence, approve; fresh as things happen.
import { postJson } from "./api.js";
import { embedded } from "./dom.js";
import { holdWhileAway, onSend, openers } from "./dialogs.js";
import { atMostEvery, listen } from "./live.js";
import { proposals } from "./proposals.js";
import { renew } from "./refresh.js";

const facts = embedded("facts");
let curves = null;
const draw = atMostEvery(2500, drawCurves);
const refresh = atMostEvery(300, async () => {
  const isAnswered = await renew();
  document.getElementById("unanswered").hidden = isAnswered;
  holdWhileAway(document, !isAnswered);
  draw();
});

openers();
proposals(document.getElementById("main"), refresh);
listen(`/api/v1/stream?run_id=${facts.run}`, { alert: refresh, command: refresh, progress: draw }, { onPoll: refresh });

const ack = document.querySelector("#ack form");
if (ack) {
  onSend(ack, async ({ note }) => {
    await postJson(`/alerts/${facts.id}/ack`, { note });
    await renew();
  });
}

const silence = document.querySelector("#silence form");
if (silence) {
  onSend(silence, async ({ which, seconds, comment }) => {
    await postJson("/silences", {
      matchers: matchersOf(which),
      ends_at: new Date(Date.now() + Number(seconds) * 1000).toISOString(),
      comment,
    });
    await renew();
  });
}

draw();

// What draws is fetched once the buttons are listened to: whoever was woken presses at once.
async function drawCurves() {
  const section = document.getElementById("curves");
  if (!section) return;
  const { AlertCurves } = await import("./alert_curves.js");
  curves ??= new AlertCurves(section, facts);
  await curves.refresh(embedded("facts"));
}

function matchersOf(which) {
  const rule = { name: "alertname", value: literal(facts.rule) };
  const run = { name: "run_id", value: literal(facts.run) };
  const project = { name: "project", value: literal(facts.project) };
  return { rule: [rule, run], run: [run], project: [rule, project] }[which];
}

// Matchers are globs: what stands in a name is meant as it stands.
function literal(text) {
  return text.replace(/[*?[]/g, "[$&]");
}
