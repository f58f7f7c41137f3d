// Buttons with `data-delete="/path"`: ask the service to take something away; the page shows it gone.
// `data-sure="question"` asks first.
import { api, ApiError } from "./api.js";
import { fault } from "./dom.js";
import { renew } from "./refresh.js";

/** The button that has asked, and how it was before. */
let asking = null;

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-delete]");
  const isSure = button !== null && button === asking?.button;
  takeBack();
  if (!button) return;
  if (button.dataset.sure && !isSure) {
    askAgain(button);
    return;
  }
  button.disabled = true;
  try {
    const headers = button.dataset.version ? { "If-Match": `"${button.dataset.version}"` } : {};
    await api("DELETE", button.dataset.delete, { headers });
    if (button.dataset.then) location.assign(button.dataset.then);
    else await renew();
  } catch (error) {
    button.disabled = false;
    if (!(error instanceof ApiError)) throw error;
    button.insertAdjacentElement("afterend", fault(error.message));
  }
});

document.addEventListener("focusin", (event) => {
  if (event.target !== asking?.button) takeBack();
});

// The second click is the answer: no dialog for what one line can ask. It may take its time, since
// not everybody is quick; whoever turns to something else has not meant it.
function askAgain(button) {
  asking = { button, text: button.textContent, isDanger: button.classList.contains("danger") };
  button.textContent = button.dataset.sure;
  button.classList.add("danger");
}

function takeBack() {
  if (!asking) return;
  asking.button.textContent = asking.text;
  asking.button.classList.toggle("danger", asking.isDanger);
  asking = null;
}
