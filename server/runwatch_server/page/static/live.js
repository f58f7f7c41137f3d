// News from the service as they happen: server-sent events, and polling where they do not come
// through (a proxy that buffers, too many open pages of one browser).

const POLL_MS = 5000;
const RETRY_MS = 30_000;

/** Calls `handlers[topic](data)` for each event, and `onPoll()` every five seconds while no stream
    is open. `onOpen()` catches up what a stream that has just opened does not tell: what happened
    since the page was made, or while there was none. `onState("live" | "polling" | "away")` hears
    which it is; away: nobody answers polls either. Nothing is asked while the page is hidden; it catches up when it is looked at
    again. */
export function listen(path, handlers, { onPoll, onOpen = onPoll, onState = () => {} }) {
  const line = { source: null, timer: 0, retry: 0 };

  function open() {
    close();
    line.source = new EventSource(path);
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
    line.source?.close();
    line.source = null;
    stopPolling();
  }
  function startPolling() {
    if (line.timer) return;
    tellWhetherAway();
    line.timer = setInterval(() => { onPoll(); tellWhetherAway(); }, POLL_MS);
  }
  async function tellWhetherAway() {
    const answer = await fetch("/healthz", { cache: "no-store" }).catch(() => null);
    if (line.timer) onState(answer ? "polling" : "away");
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
