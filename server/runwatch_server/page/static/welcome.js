// A newcomer's first steps: a key for trainers, and the demo run.
import { getJson, postJson } from "./api.js";

const LOOK_MS = 300;

const make = document.getElementById("make-key");
make.addEventListener("click", () => attempt(make, "key-fault", async () => {
  const { key } = await postJson("/keys", { name: "trainer", scopes: ["ingest"] });
  const token = document.getElementById("token");
  token.textContent = key;
  token.classList.add("made");
  document.getElementById("once").hidden = false;
  make.textContent = "Created: it is shown below";
}));

const demo = document.getElementById("demo");
demo?.addEventListener("click", () => attempt(demo, "demo-fault", async () => {
  const { run_id: run } = await postJson("/demo-run");
  demo.textContent = "Starting …";
  await firstStep(run);
  location.assign(`/runs/${run}`);
}));

async function firstStep(run) {
  while ((await getJson(`/runs/${run}`)).last_step === null) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

async function attempt(button, faultId, work) {
  const fault = document.getElementById(faultId);
  fault.hidden = true;
  button.disabled = true;
  try {
    await work();
  } catch (error) {
    fault.textContent = error.message;
    fault.hidden = false;
    button.disabled = false;
  }
}
