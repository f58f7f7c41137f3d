// How long a run is kept: pinned or let go, and by ages of its own.
import { agesOf, fillAges } from "./ages.js";
import { api } from "./api.js";
import { onSend, openers } from "./dialogs.js";
import { fault } from "./dom.js";
import { renew } from "./refresh.js";

const section = document.getElementById("keeping");
const { run } = section.dataset;

async function change(wanted) {
  await api("PATCH", `/runs/${run}/retention`, { body: wanted });
  await renew(`/runs/${run}/kept`);
}

section.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-pin]");
  if (!button) return;
  button.disabled = true;
  try {
    await change({ pinned: button.dataset.pin === "on" });
  } catch (error) {
    button.disabled = false;
    section.append(fault(error.message));
  }
});

openers(section);
const form = section.querySelector("#own-ages form");
if (form) {
  form.closest("dialog").addEventListener("opening", ({ detail }) => fillAges(form, detail));
  onSend(form, (fields) => change({ ages: agesOf(fields) }));
}
