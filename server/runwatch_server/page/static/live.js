// News from the service as they happen: server-sent events, and polling where they do not come
// through (a proxy that buffers, too many open pages of one browser).

import { atLongest } from "./api.js";

const POLL_MS = 5000;
const RETRY_MS = 30_000;
/** How often it is asked, beside a stream, whether anybody is still there, and how long for. */
const LOOK_MS = 10_000;
const LOOK_FOR_MS = 8000;

/** Calls `handlers[topic](data)` for each event, and `onPoll()` every five seconds while no stream
    is open. `onOpen()` catches up what a stream that has just opened does not tell: what happened
    since the page was made, or while there was none. `onState("live" | "polling" | "away")` hears
    which it is; away: nobody answers polls either. A stream that is open says nothing of a service
    that stands still, or of a way to it that is cut without a word, so somebody asks. Nothing is
    asked while the page is hidden; it catches up when it is looked at again. */
export function listen(path, handlers, { onPoll, onOpen = onPoll, onState = () => {} }) {
  const line = { source: null, timer: 0, retry: 0, look: 0, hasSilentStream: false };

  function open() {
    close();
    line.source = new EventSource(path);
    line.look = setInterval(look, LOOK_MS);
    line.source.onopen = () => { stopPolling(); onState("live"); onOpen(); };
    line.source.onerror = () => {
      startPolling();
      if (line.source.readyState === EventSource.CLOSED) line.retry = setTimeout(open, RETRY_MS);
    };
    for (const [topic, handle] of Object.entries(handlers)) {
      line.source.addEventListener(topic, (event) => handle(JSON.parse(event.data)));
    }
  }
  function close() {
    clearTimeout(line.retry);
    clearInterval(line.look);
    line.source?.close();
    line.source = null;
    line.hasSilentStream = false;
    stopPolling();
  }
  function startPolling() {
    if (line.timer) return;
    tellWhetherAway();
    line.timer = setInterval(() => { onPoll(); tellWhetherAway(); }, POLL_MS);
  }
  async function tellWhetherAway() {
    const answers = await isAnswering();
    if (!line.timer) return;
    onState(answers ? "polling" : "away");
    if (answers && line.hasSilentStream) open();
  }
  async function look() {
    const { source } = line;
    if (line.timer || await isAnswering() || source !== line.source || line.timer) return;
    line.hasSilentStream = true;
    onState("away");
    startPolling();
  }
  function stopPolling() {
    clearInterval(line.timer);
    line.timer = 0;
  }
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return close();
    onPoll();
    return open();
  });
  addEventListener("pagehide", close);
  if (!document.hidden) open();
}

async function isAnswering() {
  const options = { cache: "no-store", signal: atLongest(LOOK_FOR_MS) };
  return (await fetch("/healthz", options).catch(() => null)) !== null;
}

/** What `onState` hears, as a page says it. */
export const STANDS = { live: "Live", polling: "Every 5 s", away: "No answer" };

/** A function that runs `work` (async) at once, and then at most every `everyMs`, never twice at a
    time; what is asked for meanwhile is done once afterwards. Each call promises what the work that
    answers it comes to, so that whoever asks hears of its failure, also when it is put off. */
export function atMostEvery(everyMs, work) {
  let free = Promise.resolve();
  let next = null;
  return function ask() {
    next ??= free.then(() => {
      next = null;
      const done = work();
      free = done.catch(() => {}).then(() => new Promise((resolve) => setTimeout(resolve, everyMs)));
      return done;
    });
    return next;
  };
}
