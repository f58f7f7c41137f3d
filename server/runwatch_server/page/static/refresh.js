// Keeps parts of a page as the server would render them now: each element with an id and
// `data-fresh`. What has not changed stays, and a reader who stands on a link keeps it.
import { atLongest } from "./api.js";
import { twin } from "./dom.js";
import { showAges } from "./time.js";
import { Turns } from "./turns.js";

const HELD_MS = 50;
const ANSWER_MS = 15_000;
const seen = new Map();
/** By address: answers of different ones hold different parts, and do not wait for each other. */
const turns = new Map();

/** Asks for a page or a fragment, and puts its fresh parts in the place of ours. False: the service
    does not answer, or a proxy in its stead. Where the session is over, or what is shown was
    removed, the page gives way to the one that says so. */
export async function renew(url = location.href) {
  if (!turns.has(url)) turns.set(url, new Turns());
  const isToBeShown = turns.get(url).ask();
  const options = { headers: { Accept: "text/html" }, signal: atLongest(ANSWER_MS) };
  const answer = await fetch(url, options).catch(() => null);
  if (!answer || answer.status >= 500) return false;
  if (answer.redirected || isGone(answer)) location.reload();
  if (!answer.ok || answer.redirected) return true;
  const text = await answer.text().catch(() => null);
  if (text === null) return false;
  const page = new DOMParser().parseFromString(text, "text/html");
  await released("[data-fresh]");
  if (!isToBeShown()) return true;
  for (const part of page.querySelectorAll("[data-fresh][id]")) put(part);
  return true;
}

/** By the service's word: a proxy that does not find the service says 404 too, without our id. */
function isGone(answer) {
  return answer.status === 404 && answer.headers.has("X-Request-Id");
}

/** Until nobody presses on what a selector names: a button that is exchanged between press and
    release hears of no click. */
export async function released(selector) {
  while (document.querySelector(`:is(${selector}):active`)) {
    await new Promise((resolve) => setTimeout(resolve, HELD_MS));
  }
}

function put(part) {
  const old = document.getElementById(part.id);
  const html = part.innerHTML;
  if (!old || seen.get(part.id) === html) return;
  seen.set(part.id, html);
  const next = document.adoptNode(part);
  showAges(next);
  for (const open of old.querySelectorAll("details[open][id]")) {
    next.querySelector(`#${CSS.escape(open.id)}`)?.setAttribute("open", "");
  }
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  old.replaceWith(next);
  if (focused) twin(focused, next)?.focus({ preventScroll: true });
}
