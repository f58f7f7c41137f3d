// A rule file as text: checked as one types, saved, and tried on runs of the past.
import { api, postJson } from "./api.js";
import { backtest } from "./backtest.js";
import { h, refill } from "./dom.js";

const YAML = "application/yaml";
const PAUSE_MS = 250;

const editor = document.getElementById("editor");
const text = document.getElementById("text");
const gutter = editor.querySelector(".gutter");
const verdict = document.getElementById("verdict");
const saved = document.getElementById("saved");
const save = document.getElementById("save");
const { id, version, enabled } = editor.dataset;
let faultyLines = new Set();
let asking = null;
let timer = 0;

text.addEventListener("input", () => {
  drawGutter();
  saved.textContent = "";
  clearTimeout(timer);
  timer = setTimeout(check, PAUSE_MS);
});
text.addEventListener("scroll", () => { gutter.scrollTop = text.scrollTop; });
text.addEventListener("keydown", indent);
drawGutter();
check();
backtest(document.querySelector("#backtest form"), () => text.value);

/** Asks what is wrong with the text; an answer that a later one has overtaken is dropped. */
async function check() {
  asking?.abort();
  asking = new AbortController();
  try {
    const reply = await api("POST", "/rules/check", {
      body: text.value, type: YAML, signal: asking.signal,
    });
    show(reply);
  } catch (error) {
    if (error.name !== "AbortError") verdict.replaceChildren(h("p", { class: "fault" }, error.message));
  }
}

function show({ valid, rules, faults }) {
  faultyLines = new Set(faults.map((fault) => fault.line));
  drawGutter();
  if (save) save.disabled = !valid;
  refill(verdict, ...(valid
    ? [h("span", { class: "state state-good" }, `Good: ${rules.join(", ")}`)]
    : faults.map(faultButton)));
}

function faultButton(fault) {
  const { line, column } = placeOf(fault);
  const where = line ? `${line}:${column}` : fault.place;
  return h("button", { type: "button", onclick: () => pointAt(line, column) },
    h("span", { class: "mono" }, where), h("span", {}, fault.message));
}

/** A fault's line, and its column in that line: the service counts from where the value begins. */
function placeOf({ line, column }) {
  const shown = text.value.split("\n")[(line ?? 1) - 1] ?? "";
  const lead = /^\s*(?:- )?(?:[\w-]+:\s*)?["']?/.exec(shown)[0].length;
  return { line, column: column ? lead + column : /\S|$/.exec(shown).index + 1 };
}

function pointAt(line, column) {
  const lines = text.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0) + column - 1;
  text.focus();
  text.setSelectionRange(start, Math.max(start, start + wordAt(start)));
}

function wordAt(start) {
  return /^\w+|^./.exec(text.value.slice(start))?.[0].length ?? 0;
}

function drawGutter() {
  const count = text.value.split("\n").length;
  gutter.replaceChildren(...Array.from({ length: count }, (_, index) => {
    const number = index + 1;
    return faultyLines.has(number) ? h("span", { class: "bad" }, `${number}`) : `${number}\n`;
  }));
  gutter.scrollTop = text.scrollTop;
}

// Tab indents by two; Escape first, and Tab leaves the field, as the keyboard's users expect.
let tabLeaves = false;
function indent(event) {
  if (event.key === "Escape") tabLeaves = true;
  else if (event.key === "Tab" && !event.shiftKey && !tabLeaves) {
    event.preventDefault();
    document.execCommand("insertText", false, "  ");
  } else if (event.key !== "Tab") tabLeaves = false;
}

async function keep(work) {
  saved.className = "hint";
  saved.textContent = "Saving …";
  try {
    await work();
  } catch (error) {
    saved.className = "fault";
    saved.textContent = error.message;
  }
}

function put(isEnabled) {
  return api("PUT", `/rules/${id}?enabled=${isEnabled}`, {
    body: text.value, type: YAML, headers: { "If-Match": `"${version}"` },
  });
}

async function create(isEnabled) {
  const project = document.getElementById("project")?.value.trim() || editor.dataset.project;
  const query = new URLSearchParams({ enabled: String(isEnabled), ...(project ? { project } : {}) });
  const made = await postJson(`/rules?${query}`, text.value, { type: YAML });
  location.assign(made.rules.length === 1 ? `/rules/${made.rules[0].id}` : "/rules");
}

save?.addEventListener("click", () => keep(async () => {
  if (!id) return create(true);
  await put(enabled === "yes");
  return location.reload();
}));
document.getElementById("off")?.addEventListener("click", () => keep(() => create(false)));
document.getElementById("switch")?.addEventListener("click", () => keep(async () => {
  await put(enabled !== "yes");
  location.reload();
}));
