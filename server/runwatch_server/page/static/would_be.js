// What rules would have said about one stored run: the would-be alerts as bars above the curves that
// they judge, on these curves, and in words.
import { getJson, historyOf } from "./api.js";
import { Chart } from "./chart.js";
import { h } from "./dom.js";
import { count, counted, decode, short } from "./numbers.js";
import { StepAxis } from "./step_axis.js";
import { Timeline } from "./timeline.js";
import { undoneSeries } from "./undone.js";

const MOST_DRAWN = 60;
const MOST_LISTED = 200;
const MOST_CURVES = 3;
const MOST_LAYERS = 2;
const AROUND = 100;

/** Puts a card in the place of an element. `found`: the service's answer about the run; of a silent
    one, curves are drawn only where it stands alone. */
export async function showWouldBe(place, { run, name, rules, found, isAlone }) {
  const { alerts } = found;
  const card = h("section", { class: "card flush would-be", "aria-label": name },
    h("h2", { class: "row" }, h("a", { href: `/runs/${run}`, dir: "auto" }, name), verdict(found)));
  place.replaceWith(card);
  if (!alerts.length && !isAlone) return;
  const [{ stretches }, curves] = await Promise.all([
    historyOf(run), judged(run, rules, alerts)]);
  const axis = new StepAxis(
    Math.min(...stretches.map((one) => one.first_step)),
    Math.max(...stretches.map((one) => one.last_step)));
  if (alerts.length) card.append(legend(), h("div", { class: "lanes" }));
  const figures = curves.map(figureOf);
  card.append(...figures);
  if (alerts.length) card.append(table(alerts, axis));
  draw(card, { run, axis, stretches, curves, figures, alerts });
}

function draw(card, { run, axis, stretches, curves, figures, alerts }) {
  const drawn = alerts.slice(0, MOST_DRAWN).map((alert) => ({ ...alert, over: alert.resolved_step ?? axis.last }));
  const view = Object.assign(new EventTarget(), { smoothing: 0 });
  curves.forEach((curve, index) => {
    const own = drawn.filter((alert) => curve.isJudgedBy(alert));
    new Chart(figures[index], axis, view, {
      run, series: [{ name: curve.name, what: curve.what }],
      extras: (range) => undoneSeries(stretches, curve.what, range),
      lines: () => own.flatMap(linesOf),
      spans: () => own.map((alert) => ({ from: alert.firing_step, to: alert.over, look: alert.severity })),
    });
  });
  if (drawn.length) new Timeline(card, axis).tell({ marks: [], bars: drawn.map(barOf) });
}

function linesOf(alert) {
  const fires = { step: alert.firing_step, look: alert.severity };
  const onset = { step: alert.pending_step, look: alert.severity, dash: "dot" };
  return alert.pending_step < alert.firing_step ? [onset, fires] : [fires];
}

/** What the rules name: metrics of the run, and stats of the layers that most alerts began in; else
    its loss, or whatever it has. `isJudgedBy(alert)`: whether the alert's rule is about it. */
async function judged(run, rules, alerts) {
  const { metrics, layouts } = await getJson(`/runs/${run}/metrics`);
  const wordsOf = wordsByRule(rules);
  const words = new Set([...wordsOf.values()].flatMap((found) => [...found]));
  const names = (alert, name) => wordsOf.get(alert.alert)?.has(name) ?? true;
  const stats = [...new Set(layouts.flatMap((one) => one.stats))].filter((stat) => words.has(stat));
  const ofLayers = layersOf(alerts).flatMap((layer) => stats.map((stat) => ({
    name: stat, title: `${stat} of ${layer}`, what: { layer, stat },
    isJudgedBy: (alert) => alert.first_layer === layer && names(alert, stat),
  })));
  const usual = metrics.includes("loss") ? "loss" : metrics[0];
  const named = metrics.filter((metric) => words.has(metric) && !(ofLayers.length && stats.includes(metric)));
  const ofRun = (named.length || ofLayers.length ? named : [usual]).filter(Boolean).map((metric) => ({
    name: metric, title: metric, what: { metric },
    isJudgedBy: (alert) => !alert.first_layer && names(alert, metric),
  }));
  return [...ofLayers, ...ofRun].slice(0, MOST_CURVES);
}

/** The words of each rule of a file, by the name of its alert. */
function wordsByRule(rules) {
  const parts = rules.split(/\balert:/).slice(1).map((part) => part.match(/[\w/.]+/g) ?? []);
  return new Map(parts.map(([name, ...words]) => [name, new Set(words)]));
}

/** Those in which most alerts began. */
function layersOf(alerts) {
  const counts = new Map();
  for (const { first_layer: layer } of alerts) if (layer) counts.set(layer, (counts.get(layer) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).slice(0, MOST_LAYERS).map(([layer]) => layer);
}

const figureOf = ({ title }) => h("figure", { class: "chart" },
  h("figcaption", {}, h("h3", { dir: "auto" }, title)), h("div", { class: "plot" }));

const barOf = (alert) => ({
  lane: "alerts", look: alert.severity, from: alert.pending_step, to: alert.over, label: alert.alert,
  words: `${alert.severity}: ${alert.alert} ${spanInWords(alert)}. ${alert.summary}`,
});

const spanInWords = (alert) => `since step ${count(alert.pending_step)}, fires at ${count(alert.firing_step)}, ${
  alert.resolved_step === null ? "never over" : `over at ${count(alert.resolved_step)}`}`;

function verdict({ rows, alerts }) {
  const steps = counted(rows, "step");
  return alerts.length
    ? h("span", { class: "state state-warn" }, `${counted(alerts.length, "alert")} in ${steps}`)
    : h("span", { class: "state state-good" }, `Silent over ${steps}`);
}

const legend = () => h("p", { class: "legend" },
  ...[["onset", "onset"], ["fires", "fires"], ["over", "until it is over"]].map(([name, words]) =>
    h("span", { class: "entry" }, h("span", { class: `sign sign-${name}` }), words)),
  h("span", { class: "words" }, "A step in the table shows its place; double-click or 0 shows all."));

function table(alerts, axis) {
  const head = ["Alert", "Onset", "Fires", "Over", "Value"];
  const left = alerts.length - MOST_LISTED;
  return h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, head.map((name, index) => h("th", { class: index ? "num" : "" }, name)))),
    h("tbody", {}, alerts.slice(0, MOST_LISTED).map((alert) => row(alert, axis)))),
    left > 0 ? h("p", { class: "hint more-alerts" }, `and ${count(left)} more`) : null);
}

function row(alert, axis) {
  const step = (at) => (at === null ? "–" : h("button",
    { type: "button", class: "link", onclick: () => lookAt(axis, at) }, count(at)));
  return h("tr", {},
    h("td", {}, h("span", { class: `severity severity-${alert.severity}` }, alert.alert), " ",
      alert.inhibited_by ? h("span", { class: "tag" }, `explained by ${alert.inhibited_by}`) : null,
      alert.shadow ? h("span", { class: "tag" }, "shadow") : null,
      alert.summary === alert.alert ? null : h("div", { class: "hint" }, alert.summary),
      alert.first_layer ? h("div", { class: "hint mono" }, alert.first_layer) : null),
    h("td", { class: "num" }, step(alert.pending_step)),
    h("td", { class: "num" }, step(alert.firing_step)),
    h("td", { class: "num" }, step(alert.resolved_step)),
    h("td", { class: "num" }, short(decode(alert.value))));
}

function lookAt(axis, step) {
  axis.select(step);
  if (axis.last - axis.first > 4 * AROUND) axis.zoom(step - AROUND, step + AROUND);
}
