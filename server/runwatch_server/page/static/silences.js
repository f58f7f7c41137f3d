// Maintenance windows that come again, by the clock of the place where one looks at the page.
import { postJson } from "./api.js";
import { onSend, openers } from "./dialogs.js";
import { renew } from "./refresh.js";

openers();
const form = document.querySelector("#new-window form");
if (form) {
  form.elements.zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone;
  onSend(form, async ({ days, at, minutes, zone, run, comment }) => {
    const [hour, minute] = at.split(":").map(Number);
    await postJson("/silences", {
      matchers: [{ name: "run", value: run }],
      recurs: { cron: `${minute} ${hour} * * ${days}`, for_s: Number(minutes) * 60, timezone: zone },
      comment,
    });
    await renew();
  });
}
