// A chart over steps: its series asked for at the resolution in view, and drawn by Plotly.
import { h, refill } from "./dom.js";
import { GROUP } from "./numbers.js";
import { colourOf, palette } from "./palette.js";
import { MissingLibraryError, loadPlotly } from "./plotly_loader.js";
import { emptyWords, readoutOf } from "./readout.js";
import { loadSeries } from "./series.js";
import { margins, moveByKeys, pointAlong } from "./step_axis.js";
import { clipOf, extentOf, rangeAround, ticksOfLog, ticksOfSmall, ticksOfTime } from "./ticks.js";
import { arrows, brokenSpans, gapSpans, stretch, tracesOf, upright } from "./traces.js";

const CONFIG = { displayModeBar: false, doubleClick: false, showTips: false, scrollZoom: false };
const COARSE = matchMedia("(pointer: coarse)");
const PAPER = matchMedia("print");
/** Numbers below bear an exponent, on the page as in alerts. */
const SMALL = 1e-3;
/** Steps in view that all have a tick of their own. */
const FEW = 8;
/** Above a plot: room for the sign of a line that ends at its top. */
const SIGN_PIXELS = 18;
/** The share of the steps in view by which a value may miss the pointer and still be read. */
const NEAR = 1 / 50;

export class Chart {
  #asked = null;
  #isSeen = false;
  #isInSight = false;
  #isStale = true;
  #isDrawn = false;
  /** Whether it says that what draws it did not come: any reason to draw it anew may bring it. */
  #lacksLibrary = false;
  #loaded = [];
  /** The steps that were in view when what is loaded was asked for. */
  #steps = "";

  /** `figure`: an element with a <figcaption> and a `.plot`. `options`: `run`, `series` (a list of
      `{name, what, dash, sign}`), `isLog`, `along()` for what they run along (step, tokens or time),
      `extras(range)` for more series, `lines()` for upright lines (`{step, look, dash, width}`)
      and `spans()` for shaded steps (`{from, to, look}`): a look is a severity. */
  constructor(figure, axis, view, options) {
    this.figure = figure;
    this.plot = figure.querySelector(".plot");
    this.axis = axis;
    this.view = view;
    this.options = options;
    this.isLog = options.isLog ?? false;
    this.#furnish();
    axis.addEventListener("range", () => this.refresh());
    axis.addEventListener("cursor", () => this.#read());
    axis.addEventListener("selected", () => this.#point());
    view.addEventListener("change", () => this.#redraw());
    document.addEventListener("themechange", () => this.#redraw());
    new IntersectionObserver((entries) => this.#see(entries.at(-1).isIntersecting), {
      rootMargin: "200px",
    }).observe(figure);
    new ResizeObserver(() => this.#redraw()).observe(this.plot);
    addEventListener("beforeprint", () => this.#see(true));
    PAPER.addEventListener("change", () => { if (PAPER.matches) this.#see(true); });
  }

  /** What is drawn is no longer what the service has, or not what is in view. */
  refresh() {
    this.#isStale = true;
    if (this.#isInSight) this.#load();
  }

  replace(series) {
    this.options.series = series;
    this.#loaded = [];
    delete this.figure.dataset.drawn;
    this.refresh();
  }

  #furnish() {
    this.readout = h("span", { class: "readout", "aria-live": "off" });
    this.log = h("button", {
      type: "button", class: "quiet", "aria-pressed": this.isLog, title: "Logarithmic axis",
      onclick: () => { this.isLog = !this.isLog; this.#redraw(); },
    }, "log");
    this.figure.querySelector("figcaption").append(
      this.readout, h("span", { class: "tools no-print" }, this.log));
    this.cursor = h("div", { class: "cursor", hidden: true });
    this.chosen = h("div", { class: "cursor chosen", hidden: true });
    this.canvas = h("div", { class: "canvas" });
    this.says = h("div", { class: "says" }, "Loading …");
    this.plot.replaceChildren(this.canvas, this.cursor, this.chosen, this.says);
    this.plot.tabIndex = 0;
    this.plot.setAttribute("role", "group");
    this.plot.setAttribute("aria-label",
      `${this.figure.querySelector("h3").textContent} over steps. Arrow keys move along it.`);
    pointAlong(this.plot, this.axis);
    moveByKeys(this.plot, this.axis);
  }

  /** Drawn ahead of being seen: nobody who scrolls, or prints, should have to wait. */
  async prepare() {
    if (this.#isDrawn || !this.plot.clientWidth) return;
    this.#isInSight = true;
    await this.#load();
    this.#isInSight = this.#isSeen;
  }

  #see(isInSight) {
    this.#isInSight = this.#isSeen = isInSight;
    if (!isInSight) return;
    if (this.#isStale) this.#load();
    else if (!this.#isDrawn) this.#redraw();
  }

  async #load() {
    this.#asked?.abort();
    const asked = this.#asked = new AbortController();
    this.#isStale = false;
    const steps = this.axis.range.join("-");
    try {
      const loaded = await this.#ask(asked.signal);
      if (asked.signal.aborted) return;
      const known = this.#loaded.filter((one) => one.isLimit);
      this.#loaded = [...loaded, ...known];
      this.#steps = steps;
      this.#sayWhatCame();
      await this.#draw();
      const limits = await this.#askLimits(asked.signal);
      if (asked.signal.aborted || !(limits.length || known.length)) return;
      this.#loaded = [...loaded, ...limits];
      await this.#draw();
    } catch (error) {
      if (error.name !== "AbortError") this.#fail(error);
    }
  }

  #redraw() {
    this.#draw().catch((error) => this.#fail(error));
  }

  #fail(error) {
    this.#isStale = true;
    this.#lacksLibrary = error instanceof MissingLibraryError;
    this.#say(error.message, true);
  }

  async #ask(signal) {
    const { left, right } = margins();
    const points = Math.max(100, Math.min(1000, Math.round(this.plot.clientWidth - left - right)));
    const range = this.axis.isWhole ? null : this.axis.range;
    const { convert = (_, data) => data, rangeOf = (_, all) => all } = this.options;
    const wanted = [...this.options.series, ...(this.options.extras?.(this.axis.range) ?? [])];
    return Promise.all(wanted.map(async (one, index) => {
      const own = within(rangeOf(one, range), one.within);
      const asked = loadSeries(one.run ?? this.options.run, one.what, own, points, signal);
      return { ...one, colour: one.colour ?? index, data: convert(one, await asked) };
    }));
  }

  /** Levels are judged step by step, which takes longer than reading a series: they come after it,
      and until then those known before stay. */
  async #askLimits(signal) {
    return this.options.limits?.(this.axis.range, signal) ?? [];
  }

  #sayWhatCame() {
    this.#lacksLibrary = false;
    const measured = this.#loaded.filter((one) => !one.isLimit);
    this.#say(measured.some((one) => one.data.steps.length) ? "" : emptyWords(measured));
  }

  /** Who tried again by keys stays on the button as long as it fails, and then on the plot. */
  #say(text, isFault = false) {
    const isHeld = this.says.contains(document.activeElement);
    const again = isFault ? [h("button", { type: "button", onclick: () => this.refresh() }, "Try again")] : [];
    refill(this.says, text, ...again);
    this.says.hidden = !text;
    if (isHeld && !isFault) this.plot.focus({ preventScroll: true });
  }

  async #draw() {
    this.#isDrawn = false;
    if (!this.#isInSight || !this.#loaded.length || !this.plot.clientWidth) return;
    const plotly = await loadPlotly();
    const steps = this.#steps;
    const colours = palette();
    const shown = this.#loaded.filter((one) => one.data.steps.length);
    const traces = shown.flatMap((one) => tracesOf(one.data, {
      smoothing: this.view.smoothing,
      isFaint: one.isFaint,
      dash: one.dash,
      sign: one.sign,
      width: one.isFaint ? 1 : undefined,
      colour: colourOf(one, colours),
      bandColour: colours.bands[one.colour % colours.bands.length],
      badColour: colours.broken,
    }));
    this.clip = this.isLog ? null : clipOf(this.#loaded.filter((one) => !one.isLimit));
    if (this.clip) traces.push(arrows(this.clip.beyond, colours));
    this.figure.dataset.beyond = this.clip ? this.clip.beyond.map((one) => one.value).join(" ") : "";
    const measured = shown.filter((one) => !one.isFaint).map((one) => one.data);
    const broken = brokenSpans(measured, colours.brokenBg);
    const gaps = gapSpans(measured, colours.faint);
    const spans = (this.options.spans?.() ?? []).map((one) => stretch(one.from, one.to, `${colours[one.look]}2e`));
    const lines = (this.options.lines?.() ?? []).map((line) =>
      upright(line.step, line.look ? colours[line.look] : colours.faint, line.dash ?? "solid", line.width));
    this.log.setAttribute("aria-pressed", String(this.isLog));
    await plotly.react(this.canvas, traces, this.#layout(colours, [...gaps, ...broken, ...spans, ...lines]), CONFIG);
    this.#isDrawn = true;
    if (!this.isWired) this.#wire();
    if (this.#lacksLibrary) this.#sayWhatCame();
    this.#read();
    if (steps === this.#steps) this.figure.dataset.drawn = steps;
  }

  #wire() {
    this.isWired = true;
    this.canvas.on("plotly_relayout", (change) => {
      const [from, to] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      if (from !== undefined) this.axis.zoom(from, to);
    });
  }

  #layout(colours, shapes) {
    const { left, right } = margins();
    const axis = { linecolor: colours.line, gridcolor: colours.grid, zeroline: false,
      tickfont: { size: 11, color: colours.text }, ticks: "", automargin: false };
    return {
      width: this.plot.clientWidth, height: this.plot.clientHeight, shapes,
      margin: { l: left, r: right, t: this.options.series.some((one) => one.sign) ? SIGN_PIXELS : 6, b: 20 },
      paper_bgcolor: "transparent", plot_bgcolor: "transparent", showlegend: false,
      font: { family: colours.font, size: 11, color: colours.text },
      hovermode: false, separators: `.${GROUP}`, dragmode: COARSE.matches ? false : "zoom", uirevision: "steps",
      selectionrevision: 0,
      xaxis: { ...axis, range: this.axis.range, nticks: 8, fixedrange: COARSE.matches,
        separatethousands: true, ...this.#places() },
      yaxis: { ...axis, type: this.isLog ? "log" : "linear", nticks: 5, fixedrange: true,
        tickformat: "~s", ...this.#ticks() },
      yaxis2: { overlaying: "y", range: [0, 1], fixedrange: true, visible: false },
    };
  }

  /** How what the series run along is labelled: steps, tokens, or seconds of training. */
  #places() {
    const along = this.options.along?.() ?? "step";
    if (along === "time") return ticksOfTime(...this.axis.range);
    if (along === "tokens") return { tickmode: "auto", tickformat: "~s" };
    const [from, to] = this.axis.range;
    // Between two steps there is none: Plotly would write halves, rounded.
    return { tickformat: ",d", ...(to - from < FEW ? { tickmode: "linear", dtick: 1 } : { tickmode: "auto" }) };
  }

  /** Ticks of our own where Plotly's are too many (a logarithmic axis) or too long (12300000). */
  #ticks() {
    const measured = this.#loaded.filter((one) => !one.isLimit);
    const extent = this.clip?.extent ?? extentOf(measured, this.isLog);
    // Where nothing finite is, Plotly would make up numbers for its axis.
    if (!extent) return measured.length < this.#loaded.length ? {} : { showticklabels: false };
    const range = rangeAround(...extent, this.isLog, this.clip || measured.length < this.#loaded.length);
    if (this.isLog) return { ...range, ...ticksOfLog(...extent) };
    const size = Math.max(...extent.map(Math.abs));
    if (size > 0 && size < SMALL) return { ...range, ...ticksOfSmall(...(range.range ?? extent)) };
    return { ...range, tickformat: size >= 1e4 ? "~s" : "~g" };
  }

  #read() {
    this.#point();
    const [from, to] = this.axis.range;
    this.readout.replaceChildren(...readoutOf(this.#loaded, this.axis.cursor, (to - from) * NEAR));
  }

  #point() {
    const width = this.plot.clientWidth;
    for (const [line, step] of [[this.cursor, this.axis.cursor], [this.chosen, this.axis.selected]]) {
      const [from, to] = this.axis.range;
      line.hidden = step === null || step < from || step > to;
      if (!line.hidden) line.style.transform = `translateX(${this.axis.x(step, width)}px)`;
    }
  }
}

/** What of a range a series can have, where it has not all. */
function within(range, own) {
  if (!own || !range) return range;
  return [Math.max(range[0], own[0]), Math.min(range[1], own[1])];
}
