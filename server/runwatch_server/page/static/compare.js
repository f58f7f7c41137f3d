// Two runs in one picture: along steps, tokens or training time.
import { Chart } from "./chart.js";
import { along } from "./course.js";
import { embedded } from "./dom.js";
import { rate, count } from "./numbers.js";
import { StepAxis } from "./step_axis.js";
import { duration } from "./time.js";
import { Turns } from "./turns.js";

const by = (id) => document.getElementById(id);
const told = embedded("told");

for (const select of by("pair").querySelectorAll("select")) {
  select.addEventListener("change", () => by("pair").requestSubmit());
}
if (told?.sides.length === 2) show(told.sides);

async function show(sides) {
  const axis = new StepAxis(0, Math.max(...sides.map((side) => side.last)));
  const view = Object.assign(new EventTarget(), { smoothing: 0 });
  const turns = new Turns();
  let courses = null;
  const charts = [...document.querySelectorAll("#charts .chart")].map((figure) => new Chart(
    figure, axis, view, {
      isLog: figure.dataset.log === "yes",
      convert: (one, data) => (courses ? courses[one.side].convert(data) : data),
      rangeOf: (one, range) => (courses ? courses[one.side].stepsOf(range) : range),
      along: () => (courses ? by("along").value : "step"),
      series: sides.flatMap((side, index) => (side.metrics.includes(figure.dataset.metric) ? [{
        name: side.letter.toUpperCase(), sign: side.letter.toUpperCase(), run: side.run, side: index, colour: index,
        what: { metric: figure.dataset.metric, attempt: side.attempt ?? undefined },
      }] : [])),
    }));

  by("along").addEventListener("change", async () => {
    const kind = by("along").value;
    const isToBeShown = turns.ask();
    let found = null;
    let fault = "";
    try {
      found = kind === "step" ? null : await Promise.all(sides.map((side) => along(side, kind)));
    } catch (error) {
      fault = error.message;
    }
    if (!isToBeShown()) return;
    if (fault) by("along").value = "step";
    by("at").textContent = fault;
    courses = found;
    axis.reset(0, courses ? Math.max(...courses.map((course) => course.last)) : Math.max(...sides.map((side) => side.last)));
    for (const chart of charts) chart.refresh();
  });
  by("smoothing").addEventListener("input", (event) => {
    view.smoothing = Number(event.target.value);
    by("smoothing-worth").textContent = view.smoothing ? view.smoothing.toFixed(2) : "off";
    view.dispatchEvent(new Event("change"));
  });
  by("all").addEventListener("click", () => axis.showAll());
  axis.addEventListener("cursor", () => { by("at").textContent = axis.cursor === null ? "" : placeInWords(axis.cursor); });
}

function placeInWords(at) {
  const kind = by("along").value;
  if (kind === "tokens") return `${rate(at)} tokens`;
  return kind === "time" ? `after ${duration(at)} of training` : `step ${count(at)}`;
}
