// A newcomer's first steps: a key for trainers, and the demo run.
import { getJson, postJson, withKey } from "./api.js";

const LOOK_MS = 300;

const form = document.getElementById("make-key");
const make = form.querySelector("button");
form.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(make, "key-fault", makeKey);
});

async function makeKey() {
  const body = { name: "trainer", scopes: ["ingest"] };
  const { key } = await postJson("/keys", body, { headers: withKey(form.elements.own_key.value) });
  form.reset();
  const token = document.getElementById("token");
  token.textContent = key;
  token.classList.add("made");
  document.getElementById("once").hidden = false;
  make.textContent = "Created: it is shown below";
}

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
