// What a rule would have said about a stored run: its would-be alerts, and where they lie on a curve.
import { getJson, postJson } from "./api.js";
import { Chart } from "./chart.js";
import { onSend } from "./dialogs.js";
import { h } from "./dom.js";
import { count, decode, short } from "./numbers.js";
import { StepAxis } from "./step_axis.js";

const MOST_LINES = 60;
const view = Object.assign(new EventTarget(), { smoothing: 0, undone: false });

/** Makes a form try the rule file that `text()` gives on the run chosen in it. */
export function backtest(form, text) {
  if (!form) return;
  const place = document.getElementById("would-be");
  onSend(form, async ({ run }) => {
    place.replaceChildren(h("p", { class: "muted" }, "Reading the run …"));
    try {
      const rules = text();
      const { runs: [found] } = await postJson("/rules/backtest", { run_id: run, rules });
      place.replaceChildren(...told(found));
      await draw(run, await judged(run, rules), found.alerts);
    } catch (error) {
      place.replaceChildren();
      throw error;
    }
  });
}

/** The first of the run's metrics that the rules name; else its loss, or whatever it has. */
async function judged(run, rules) {
  const { metrics } = await getJson(`/runs/${run}/metrics`);
  const names = metrics.map((metric) => metric.name ?? metric);
  const words = new Set(rules.match(/[\w/]+/g));
  return names.find((name) => words.has(name)) ?? names.find((name) => name === "loss") ?? names[0];
}

async function draw(run, metric, alerts) {
  const old = document.getElementById("curve");
  if (!metric) return;
  const figure = h("figure", { class: "chart", id: "curve" },
    h("figcaption", {}, h("h3", { dir: "auto" }, metric)), h("div", { class: "plot" }));
  old.replaceWith(figure);
  const { stretches } = await getJson(`/runs/${run}/history`);
  const axis = new StepAxis(
    Math.min(...stretches.map((one) => one.first_step)),
    Math.max(...stretches.map((one) => one.last_step)));
  const lines = alerts.slice(0, MOST_LINES).map((alert) => ({ step: alert.firing_step, isAlert: true }));
  new Chart(figure, axis, view, {
    run, series: [{ name: metric, what: { metric } }], lines: () => lines,
  });
}

function told({ rows, alerts }) {
  if (!alerts.length) {
    return [h("p", {}, h("span", { class: "state state-good" }, `Silent over ${count(rows)} steps`))];
  }
  const head = ["Alert", "From", "Fires", "Over", "Value"];
  return [
    h("p", {}, `${count(alerts.length)} in ${count(rows)} steps`),
    h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, head.map((name, index) => h("th", { class: index ? "num" : "" }, name)))),
      h("tbody", {}, alerts.map(row)))),
  ];
}

function row(alert) {
  return h("tr", {},
    h("td", {}, h("span", { class: `severity severity-${alert.severity}` }, alert.alert),
      h("div", { class: "hint" }, alert.summary)),
    h("td", { class: "num" }, count(alert.pending_step)),
    h("td", { class: "num" }, count(alert.firing_step)),
    h("td", { class: "num" }, count(alert.resolved_step)),
    h("td", { class: "num" }, short(decode(alert.value))));
}
