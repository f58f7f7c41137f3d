// How long the runs of a project are kept, and what goes next.
import { agesOf, fillAges } from "./ages.js";
import { api } from "./api.js";
import { onSend } from "./dialogs.js";
import { renew } from "./refresh.js";

const due = document.getElementById("due");
const look = () => { if (due.open) renew("/settings/due"); };
due.addEventListener("toggle", look);

const form = document.querySelector("#project-ages form");
if (form) {
  form.closest("dialog").addEventListener("opening", ({ detail: opener }) => {
    form.elements.project.value = opener.dataset.project;
    fillAges(form, opener);
  });
  onSend(form, async (fields) => {
    await api("PATCH", "/retention", { body: { project: fields.project, ages: agesOf(fields) } });
    await renew();
    look();
  });
}
