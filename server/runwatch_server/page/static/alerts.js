// The list of alerts: filters that apply at once, rows that stay fresh.
import { renew } from "./refresh.js";

const POLL_MS = 5000;

for (const form of document.querySelectorAll("form[data-instant]")) {
  form.addEventListener("change", () => form.requestSubmit());
}
setInterval(async () => {
  if (!document.hidden) document.getElementById("unanswered").hidden = await renew();
}, POLL_MS);
