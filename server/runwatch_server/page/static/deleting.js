// Buttons with `data-delete="/path"`: ask the service to take something away; the page shows it gone.
// `data-sure="question"` asks first.
import { api, ApiError } from "./api.js";
import { h } from "./dom.js";
import { renew } from "./refresh.js";

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-delete]");
  if (!button) return;
  if (button.dataset.sure && !button.dataset.asked) {
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
    if (!(error instanceof ApiError)) throw error;
    button.insertAdjacentElement("afterend", h("p", { class: "fault", role: "alert" }, error.message));
  }
});

// The second click is the answer: no dialog for what one line can ask.
function askAgain(button) {
  const before = button.textContent;
  button.dataset.asked = "yes";
  button.textContent = button.dataset.sure;
  button.classList.add("danger");
  setTimeout(() => {
    delete button.dataset.asked;
    button.textContent = before;
    button.classList.remove("danger");
  }, 5000);
}
