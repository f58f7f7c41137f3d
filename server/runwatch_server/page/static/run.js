// The page of a run: puts its parts on one step axis, and keeps them up to date.
import { getJson, historyOf } from "./api.js";
import { Chart } from "./chart.js";
import { embedded } from "./dom.js";
import { Layers } from "./layers.js";
import { STANDS, atMostEvery, listen } from "./live.js";
import { count } from "./numbers.js";
import { Ranks } from "./ranks.js";
import { renew } from "./refresh.js";
import { StepAxis } from "./step_axis.js";
import { storyOf } from "./story.js";
import { limitsOf } from "./thresholds.js";
import { Timeline } from "./timeline.js";
import { Turns } from "./turns.js";
import { undoneSeries } from "./undone.js";

const NEWEST = 1000;
const AHEAD_MS = 1500;
const AROUND = 200;
const JUDGING_MS = 3000;
const AGAIN_MS = 10_000;
const FIRING = ["firing", "recovering"];

const told = embedded("told");
const axis = new StepAxis(told.first, told.last);
const view = Object.assign(new EventTarget(), { smoothing: 0, undone: true, thresholds: true });
const by = (id) => document.getElementById(id);
const turns = new Turns();
const shown = { history: told.history, alerts: [] };

const charts = [...document.querySelectorAll("#charts .chart")].map((figure) => {
  const metrics = JSON.parse(figure.dataset.metrics);
  return new Chart(figure, axis, view, {
    run: told.run,
    isLog: figure.dataset.log === "yes",
    series: metrics.map((metric) => ({ name: metric, what: { metric } })),
    extras: (range) => (view.undone ? undoneSeries(shown.history.stretches, { metric: metrics[0] }, range) : []),
    lines: uprights,
    limits: (range, signal) => (view.thresholds ? limitsOf(told.run, { metric: metrics[0] }, range, signal) : []),
  });
});
const timeline = by("timeline") && new Timeline(by("timeline"), axis);
const layers = by("layers") && new Layers(by("layers"), axis, view, told.run);
const ranks = by("ranks") && new Ranks(by("ranks"), axis, view, told.run);

/** Where an attempt or segment begins, and where what fires began. */
function uprights() {
  const starts = shown.history.stretches.filter((one) => one.in_force).slice(1)
    .map((one) => ({ step: one.first_step, dash: "dot" }));
  const onsets = shown.alerts.filter((alert) => FIRING.includes(alert.state) && alert.severity !== "info")
    .map((alert) => ({ step: alert.onset_step, look: alert.severity }));
  return [...starts, ...onsets].slice(0, 60);
}

/** Of what fires, or fired when the run ended; null if nothing does. */
function firstOnset() {
  const onsets = shown.alerts.filter((alert) => alert.severity !== "info" && alert.rank === 0
    && (FIRING.includes(alert.state) || alert.resolution === "run_ended")).map((alert) => alert.onset_step);
  return onsets.length ? Math.min(...onsets) : null;
}

async function tellStory() {
  const isToBeShown = turns.ask();
  const [events, alerts, commands, history] = await Promise.all([
    everyEvent(),
    getJson(`/alerts?run_id=${told.run}&limit=500`),
    getJson(`/runs/${told.run}/commands?limit=500`),
    historyOf(told.run),
  ]);
  if (!isToBeShown()) return;
  shown.history = history;
  shown.alerts = alerts.alerts;
  const { stretches } = history;
  const last = Math.max(axis.last, ...stretches.map((one) => one.last_step));
  const first = Math.min(...stretches.map((one) => one.first_step));
  timeline?.tell(storyOf({ events, alerts: alerts.alerts, commands: commands.commands, history, last }));
  ranks?.tell(history.ranks);
  layers?.tell(firstOnset());
  if (stretches.length) axis.grow(first, last);
  view.dispatchEvent(new Event("change"));
  describeCursor();  // no longer why it could not be told
}

/** All events but for those beyond many large answers. */
async function everyEvent() {
  const found = [];
  let query = "limit=10000";
  for (let parts = 0; parts < 20 && found.length < 50_000; parts++) {
    const { events, next_token } = await getJson(`/runs/${told.run}/timeline?${query}`);
    found.push(...events);
    if (!events.length) break;
    query = `limit=10000&next_token=${next_token}`;
  }
  return found;
}

/** What happened; the charts' steps only where there are more of them. */
async function catchUp() {
  await Promise.all([renew(`/runs/${told.run}/fresh`), tellStory()]);
  if (!by("charts") && axis.last > told.last) location.reload();
}

const refresh = atMostEvery(2500, async () => {
  const before = axis.last;
  await catchUp();
  if (axis.last === before && !axis.isWhole) return;
  if (axis.isWhole && axis.last !== before) return;  // the axis has told its parts already
  for (const chart of charts) chart.refresh();
  layers?.refresh();
});

function describeView() {
  const [from, to] = axis.trained;
  by("in-view").textContent = `${count(from)} – ${count(to)}${axis.isWhole ? " (all)" : ""}`;
  const address = new URL(location.href);
  for (const [name, value] of [["from", axis.isWhole ? null : from], ["to", axis.isWhole ? null : to],
    ["step", axis.selected], ["layer", layers?.layer ?? null]]) {
    if (value === null) address.searchParams.delete(name);
    else address.searchParams.set(name, String(value));
  }
  history.replaceState(null, "", address);
}

function describeCursor() {
  const step = axis.cursor ?? axis.selected;
  const text = step === null ? "" : `${axis.cursor === null ? "chosen " : ""}step ${count(step)}`;
  if (by("at").textContent !== text) by("at").textContent = text;  // what is said twice is read aloud twice
}

const deeds = {
  closer: () => axis.scale(0.5), further: () => axis.scale(2),
  left: () => axis.pan(-0.5), right: () => axis.pan(0.5),
  back: () => axis.back(), all: () => axis.showAll(),
  newest: () => axis.zoom(Math.max(axis.first, axis.last - NEWEST + 1), axis.last),
};

document.querySelector(".toolbar").addEventListener("click", (event) => {
  deeds[event.target.closest("button")?.dataset.do]?.();
});
by("smoothing").addEventListener("input", (event) => {
  view.smoothing = Number(event.target.value);
  by("smoothing-worth").textContent = view.smoothing ? view.smoothing.toFixed(2) : "off";
  view.dispatchEvent(new Event("change"));
});
for (const name of ["undone", "thresholds"]) {
  by(name).addEventListener("change", (event) => {
    view[name] = event.target.checked;
    for (const chart of charts) chart.refresh();
    layers?.refreshLayer();
  });
}
document.addEventListener("click", (event) => {
  const link = event.target.closest("button[data-step], button[data-layer]");
  if (!link) return;
  if (link.dataset.step) lookAt(Number(link.dataset.step));
  if (link.dataset.layer) layers?.show(link.dataset.layer);
});

function lookAt(step) {
  axis.select(step);
  if (axis.last - axis.first > 4 * AROUND) axis.zoom(step - AROUND, step + AROUND);
  by("timeline")?.scrollIntoView({ block: "start", behavior: "smooth" });
}

axis.addEventListener("range", describeView);
axis.addEventListener("grown", describeView);
axis.addEventListener("selected", () => { describeView(); describeCursor(); });
axis.addEventListener("cursor", describeCursor);
if (told.from !== null && told.to !== null) axis.zoom(told.from, told.to);
else if (told.step !== null && axis.last - axis.first > 4 * AROUND) axis.zoom(told.step - AROUND, told.step + AROUND);
if (told.step !== null) axis.select(told.step);
if (layers) {
  layers.layer = told.layer;
  layers.onShow = describeView;
}
describeView();

setTimeout(async () => { for (const chart of charts) await chart.prepare(); }, AHEAD_MS);
const sayWhy = (error) => { by("at").textContent = error.message; };
tellStory().catch(sayWhy);
if (told.live) follow();
else awaitMore();

function follow() {
  const ask = () => refresh().catch(sayWhy);
  const tell = () => {
    document.dispatchEvent(new CustomEvent("runnews"));
    return ask();
  };
  by("live").hidden = false;
  listen(`/api/v1/stream?run_id=${told.run}`, { alert: tell, command: tell, progress: ask }, {
    onPoll: ask,
    onOpen: () => catchUp().catch(sayWhy),
    onState: (name) => {
      // What acts on the run hears at once that the service went, or came back.
      if (name !== by("live").dataset.state) document.dispatchEvent(new CustomEvent("runnews"));
      by("live").textContent = STANDS[name];
      by("live").dataset.state = name;
    },
  });
}

/** Of a run that is over little more is told, and no stream is held open for it: what is still to be
    judged, and whether another attempt began, which is followed then. */
async function awaitMore() {
  by("live").hidden = true;
  while (by("banner").dataset.ended === "yes") {
    const isUnjudged = document.querySelector("#banner .unjudged") !== null;
    await new Promise((resolve) => setTimeout(resolve, isUnjudged ? JUDGING_MS : AGAIN_MS));
    if (document.hidden) continue;
    const asked = isUnjudged ? catchUp() : renew(`/runs/${told.run}/fresh`);
    await asked.catch(sayWhy);  // a service that is away for a while is asked again
  }
  follow();
}
