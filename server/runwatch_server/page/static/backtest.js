// Tries a rule file on stored runs: on one, or on the newest one after the other.
import { postJson } from "./api.js";
import { onSend } from "./dialogs.js";
import { h } from "./dom.js";
import { showWouldBe } from "./would_be.js";

const NEWEST = "newest";

/** Makes a form try the rule file that `text()` gives on what is chosen in it. */
export function backtest(form, text) {
  if (!form) return;
  const place = document.getElementById("would-be");
  onSend(form, async ({ run: chosen }) => {
    const runs = runsOf(form.elements.run, chosen);
    const rules = text();
    place.replaceChildren();
    for (const [index, { run, name }] of runs.entries()) {
      const waits = h("p", { class: "card muted", role: "status" },
        `Reading ${name}${runs.length > 1 ? ` (${index + 1} of ${runs.length})` : ""} …`);
      place.append(waits);
      try {
        const { runs: [found] } = await postJson("/rules/backtest", { run_id: run, rules });
        await showWouldBe(waits, { run, name, rules, found, isAlone: runs.length === 1 });
      } catch (error) {
        waits.remove();
        throw error;
      }
    }
  });
}

/** Id and name of each run to be read. */
function runsOf(select, chosen) {
  const offered = [...select.options].filter((one) => one.value !== NEWEST)
    .map((one) => ({ run: one.value, name: one.dataset.name }));
  if (chosen !== NEWEST) return offered.filter((one) => one.run === chosen);
  return offered.slice(0, Number(select.querySelector(`[value=${NEWEST}]`).dataset.number));
}
