// Waits for a job's first run: the service then leads from this address to it.
import { renew } from "./refresh.js";

const LOOK_MS = 1000;

for (;;) {
  await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  const answers = await renew();
  document.getElementById("waiting").hidden = !answers;
  document.getElementById("away").hidden = answers;
}
