// Forms that ask the service for something: they say when they are busy, and what went wrong.
import { fault } from "./dom.js";

/** Opens the <dialog> that a button with `data-opens="id"` names. */
export function openers(root = document) {
  root.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-opens]");
    if (opener) {
      const dialog = document.getElementById(opener.dataset.opens);
      dialog.dispatchEvent(new CustomEvent("opening", { detail: opener }));
      dialog.showModal();
      dialog.addEventListener("close", () => goBackTo(opener), { once: true });
    }
    if (event.target.closest("[data-closes]")) event.target.closest("dialog").close();
  });
}

/** Meanwhile a fresh button may stand in the opener's place, or none: then the page itself is where
    a reader without a mouse goes on, and not at its very beginning. */
function goBackTo(opener) {
  const same = [...document.querySelectorAll(`[data-opens="${CSS.escape(opener.dataset.opens)}"]`)];
  const found = opener.isConnected ? opener
    : same.find(({ dataset: { kind, project } }) => kind === opener.dataset.kind && project === opener.dataset.project);
  const place = found && !found.disabled ? found : document.querySelector("main");
  if (place.localName === "main") place.tabIndex = -1;
  place.focus({ preventScroll: true });
}

/** Runs `work(fields, form)` when a form is sent, and closes the dialog that it stands in. */
export function onSend(form, work) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    tell(form, "");
    const buttons = form.querySelectorAll("button");
    for (const button of buttons) button.disabled = true;
    form.dataset.sending = "";
    try {
      await work(Object.fromEntries(new FormData(form)), form);
      form.closest("dialog")?.close();
    } catch (error) {
      tell(form, error.message);
    } finally {
      for (const button of buttons) button.disabled = false;
      delete form.dataset.sending;
      judge(form);
    }
  });
}

/** Shows what went wrong in the form's `.fault`, or hides it. */
export function tell(form, text) {
  const place = form.querySelector(".fault");
  place.textContent = text;
  place.hidden = !text;
}

/** Leaves a form's main button disabled until its field `confirm` holds the wanted text. */
export function demandName(form, wanted) {
  form.dataset.wanted = wanted;
  form.addEventListener("input", () => judge(form));
  judge(form);
}

/** While the service is away the dialogs below a node say so and cannot be sent; what was typed
    in them stays. */
export function holdWhileAway(root, isAway) {
  for (const form of root.querySelectorAll("dialog form")) {
    if (isAway === "away" in form.dataset) continue;
    form.toggleAttribute("data-away", isAway);
    if (isAway) form.querySelector(".actions").before(fault(AWAY));
    else form.querySelector(".actions").previousElementSibling.remove();
    judge(form);
  }
}

const AWAY = "The service does not answer. This can be sent when it does again.";

function judge(form) {
  const { away, sending, wanted } = form.dataset;
  const isNamed = wanted === undefined || form.elements.confirm.value === wanted;
  form.querySelector("button[value=go]").disabled = away !== undefined || sending !== undefined || !isNamed;
}
