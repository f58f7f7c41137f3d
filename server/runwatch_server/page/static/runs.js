// The runs page: rows come from the server as HTML; here they are kept fresh, searched as one
// types, and given their curves.
import { getJson, reach } from "./api.js";
import { STANDS, atMostEvery, listen } from "./live.js";
import { decode, rate, short } from "./numbers.js";
import { released } from "./refresh.js";
import { sparkline } from "./sparkline.js";
import { showAges } from "./time.js";
import { Turns } from "./turns.js";

const CHUNK = 12;
const TYPING_MS = 250;

const form = document.getElementById("filter");
const area = document.getElementById("fleet");
const state = document.getElementById("live");
const picked = document.getElementById("picked");
const pulses = new Map();
/** Names of runs by their ids, in the order of choosing. */
const chosen = new Map();
const turns = new Turns();

/** The rows of the page's present address, put in place of those shown. */
async function refresh() {
  const isToBeShown = turns.ask();
  const answer = await reach(location.href, { headers: { "X-Fragment": "fleet" } });
  if (answer.status === 401 || answer.redirected) return location.reload();
  if (!answer.ok) return say(`The list could not be read (${answer.status}). It is tried again.`);
  const text = await answer.text();
  await released("#fleet");
  if (!isToBeShown()) return null;
  const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("fleet");
  const focused = document.activeElement?.closest("tr")?.id;
  area.replaceChildren(...fresh.childNodes);
  if (focused) document.getElementById(focused)?.querySelector("a")?.focus({ preventScroll: true });
  showAges(area);
  tick();
  showKnown();
  say("");
  return fillPulses();
}

function showKnown() {
  for (const row of rows()) {
    const pulse = pulses.get(row.dataset.run);
    if (pulse) show(row, pulse);
  }
}

async function fillPulses() {
  const wanted = rows().map((row) => row.dataset.run);
  for (let start = 0; start < wanted.length; start += CHUNK) {
    const ids = wanted.slice(start, start + CHUNK);
    const query = ids.map((id) => `run_id=${encodeURIComponent(id)}`).join("&");
    const found = await getJson(`/fleet/pulse?${query}`);
    for (const pulse of found.pulses) {
      pulses.set(pulse.run_id, pulse);
      const row = document.getElementById(`run-${pulse.run_id}`);
      if (row) show(row, pulse);
    }
  }
}

function show(row, pulse) {
  const loss = pulse.curve ? decode(pulse.latest[pulse.curve.metric]) : undefined;
  const cell = row.querySelector(".loss-now");
  cell.textContent = short(loss);
  cell.classList.toggle("is-broken", loss !== undefined && !Number.isFinite(loss));
  row.querySelector(".curve").replaceChildren(
    pulse.curve && pulse.curve.steps.length ? sparkline(pulse.curve) : "–");
  if (row.dataset.hasSpeed === "yes") row.querySelector(".speed").textContent = speed(pulse);
}

function speed(pulse) {
  const tokens = decode(pulse.latest.tokens_per_s);
  if (tokens !== undefined) return `${rate(tokens)} tok/s`;
  return pulse.steps_per_s === null ? "–" : `${short(pulse.steps_per_s)} steps/s`;
}

const rows = () => [...area.querySelectorAll("tr[data-run]")];

function say(text) {
  const place = document.getElementById("fault");
  place.textContent = text;
  place.hidden = !text;
}

/** Goes to the address that the form stands for, without leaving the page. */
function search() {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value) query.set(name, value);
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
  return soon();
}

const soon = atMostEvery(TYPING_MS, () => refresh().catch((error) => say(error.message)));
const later = atMostEvery(3000, () => refresh().catch((error) => say(error.message)));

form.addEventListener("input", search);
form.addEventListener("submit", (event) => { event.preventDefault(); search(); });
area.addEventListener("change", ({ target }) => {
  if (target.name !== "compare") return;
  if (!target.checked) chosen.delete(target.value);
  else chosen.set(target.value, target.closest("tr").querySelector(".name a").textContent);
  if (chosen.size > 2) chosen.delete(chosen.keys().next().value);  // a third takes the first one's place
  tellChosen();
});
picked.querySelector("button").addEventListener("click", () => { chosen.clear(); tellChosen(); });

/** What is chosen to be compared, in sight however far down the list it was chosen. */
function tellChosen() {
  const [a, b] = chosen.keys();
  tick();
  picked.hidden = !chosen.size;
  picked.querySelector("p").textContent = chosen.size === 1
    ? `${chosen.get(a)}: choose a second run to compare it with` : [...chosen.values()].join(" and ");
  const link = document.getElementById("compare");
  link.hidden = chosen.size !== 2;
  link.href = `/compare?a=${a}&b=${b}`;
}

function tick() {
  for (const box of area.querySelectorAll("input[name=compare]")) box.checked = chosen.has(box.value);
}
document.addEventListener("keydown", (event) => {
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "");
  if (event.key === "/" && !isTyping) {
    event.preventDefault();
    form.elements.search.focus();
  }
});

listen("/api/v1/fleet/stream", { fleet: later }, {
  onPoll: later,
  onState: (name) => {
    state.textContent = STANDS[name];
    state.dataset.state = name;
  },
});
fillPulses().catch((error) => say(error.message));
