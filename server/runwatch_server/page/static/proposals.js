// Approve, reject and withdraw, wherever a command is shown.
import { postJson } from "./api.js";
import { fault } from "./dom.js";

/** Listens for the buttons below a node, and calls `done()` after each. */
export function proposals(node, done) {
  node.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-approve], [data-cancel]");
    if (!button) return;
    const { approve, cancel } = button.dataset;
    button.disabled = true;
    try {
      await postJson(approve ? `/commands/${approve}/approve` : `/commands/${cancel}/cancel`);
    } catch (error) {
      button.insertAdjacentElement("afterend", fault(error.message));
    }
    button.blur();
    await done();
  });
}
