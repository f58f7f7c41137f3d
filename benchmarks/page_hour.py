"""How much does a page grow that is left open beside a live run?

A real `runwatch serve` process and a real Chromium that shows the run of a trainer which sends a
row a step. All of the page is in sight, so that each piece of news redraws all of it: banner,
timeline, curves with the rules' levels, heat map, worst layers. The page brings itself up to date
at most every 2.5 s, which is 1440 times in an hour at a row a second; so that nobody has to wait
that hour, the page's timers run `--speed` times as fast, and rows come as fast. What each update
does is done in full. Memory is read after a forced collection of garbage: the JavaScript heap, what
it keeps alive (nodes, listeners), and what the renderers' processes hold in all.

    python -m benchmarks.page_hour --updates 1440
"""

import argparse
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import httpx
from benchmarks.harness import machine, markdown_table
from benchmarks.page import log_in
from playwright.sync_api import (
    Browser,
    BrowserContext,
    CDPSession,
    Page,
    Playwright,
    sync_playwright,
)
from tests.end_to_end.real_service import RealService
from tests.page.seeding import Sender, Stream, curve, layer_stats, layout_of

from runwatch.vocabulary import RunId

Answer = dict[str, Any]
"""Of the browser's own protocol."""

UPDATES_AN_HOUR: Final = 1440
NUM_LAYERS: Final = 48
FIRST_ROWS: Final = 600
READINGS: Final = 8
WINDOW: Final = "1360,5000"
"""High enough for all of the page to be in sight."""
MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Reading:
    updates: int
    rows: int
    heap_bytes: float
    nodes: int
    listeners: int
    process_bytes: int
    """Anonymous memory of the renderers."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=UPDATES_AN_HOUR)
    parser.add_argument("--speed", type=float, default=10.0)
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(prefix="runwatch-bench-") as name:
        service = RealService(Path(name))
        service.start()
        try:
            readings = watch(service, given.updates, given.speed)
        finally:
            service.stop()
    print(markdown_table(
        ["updates", "rows", "heap MiB", "nodes", "listeners", "process MiB"],
        [[one.updates, one.rows, f"{one.heap_bytes / MIB:.2f}", one.nodes, one.listeners,
          f"{one.process_bytes / MIB:.0f}"] for one in readings],
    ))  # fmt: skip
    first, last = readings[0], readings[-1]
    grown = (last.heap_bytes - first.heap_bytes) / MIB
    updates = last.updates - first.updates
    print(f"heap: {grown:+.2f} MiB over {updates} updates, {grown / updates * 1024:+.2f} KiB each")


def watch(service: RealService, updates: int, speed: float) -> list[Reading]:
    """Readings from when the page has settled until so many updates later."""
    sender = Sender(service.url, service.admin_key)
    with (
        live_run(sender, 1 / speed) as trainer,
        sync_playwright() as playwright,
        open_browser() as address,
    ):
        with attached(playwright, address) as browser:
            open_page(browser.contexts[0], service, trainer.run_id, speed)
        settled = max(20, updates // 20)
        found: list[Reading] = []
        for index in range(READINGS + 1):
            awaited = settled + index * updates // READINGS
            found.append(read(playwright, address, awaited, settled, trainer))
            print(found[-1], flush=True)
        return found


@contextmanager
def open_browser() -> Generator[str]:
    """A Chromium that lives on while nobody is attached to it; the address to attach to."""
    path = shutil.which("chromium")
    assert path is not None, "Chromium is not installed"
    with tempfile.TemporaryDirectory(prefix="runwatch-bench-") as name:
        process = subprocess.Popen(
            [path, "--headless=new", "--no-sandbox", "--no-first-run", "--disable-gpu",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
             f"--window-size={WINDOW}", "--remote-debugging-port=0",
             f"--user-data-dir={name}", "about:blank"],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            port = Path(name, "DevToolsActivePort")
            while not (port.exists() and port.read_text()):
                assert process.poll() is None, "Chromium did not start"
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port.read_text().splitlines()[0]}"
        finally:
            process.terminate()
            process.wait()


@contextmanager
def attached(playwright: Playwright, address: str) -> Generator[Browser]:
    """For moments, and seldom: while a debugger is attached the renderer keeps each answer's body
    for it, up to a hundred megabytes, and of each time it was there something stays."""
    browser = playwright.chromium.connect_over_cdp(address)
    try:
        yield browser
    finally:
        browser.close()


def open_page(context: BrowserContext, service: RealService, run_id: RunId, speed: float) -> None:
    page = context.pages[0]
    log_in(page, service.url, service.admin_key)
    context.add_init_script(_QUICK_TIMERS % (speed, _TITLE))
    page.goto(f"{service.url}/runs/{run_id}")
    page.wait_for_selector("#layers[data-drawn]", timeout=120_000)
    page.wait_for_selector(".chart[data-drawn]", timeout=120_000)


class Trainer(threading.Thread):
    """Sends a row after the other, and something to tell every few hundred."""

    def __init__(self, sender: Sender, run_id: RunId, pause_s: float) -> None:
        super().__init__(daemon=True)
        layout = layout_of(NUM_LAYERS)
        sender.layout(run_id, layout)
        self.run_id = run_id
        self.num_rows = FIRST_ROWS
        self._layout = layout
        self._pause_s = pause_s
        self._stream = Stream(sender, run_id, layout)
        self._stream.send(0, curve(0, FIRST_ROWS), stats=layer_stats(layout, FIRST_ROWS))
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(self._pause_s):
            stats = layer_stats(self._layout, 1, seed=self.num_rows)
            self._stream.send(self.num_rows, curve(self.num_rows, 1), stats=stats)
            self.num_rows += 1

    def end(self) -> None:
        self._ended.set()
        self.join()


@contextmanager
def live_run(sender: Sender, pause_s: float) -> Generator[Trainer]:
    trainer = Trainer(sender, sender.open("left open"), pause_s)
    trainer.start()
    try:
        yield trainer
    finally:
        trainer.end()


def read(
    playwright: Playwright, address: str, updates: int, settled: int, trainer: Trainer
) -> Reading:
    """When so many updates have been made, `settled` of which count for nothing."""
    while (made := updates_made(address)) < updates:
        time.sleep(1)
    with attached(playwright, address) as browser:
        return _read_now(browser, browser.contexts[0].pages[0], made - settled, trainer.num_rows)


def updates_made(address: str) -> int:
    """From the tab's title, which the browser tells without being attached to."""
    pages = cast("list[Answer]", httpx.get(f"{address}/json/list").json())
    titles = (str(one["title"]) for one in pages)
    return next(int(title.removeprefix(_TITLE)) for title in titles if title.startswith(_TITLE))


def _read_now(browser: Browser, page: Page, updates: int, rows: int) -> Reading:
    session = page.context.new_cdp_session(page)
    for _ in range(3):  # what a finaliser frees is garbage of the next collection
        session.send("HeapProfiler.collectGarbage")
    heap = cast(Answer, session.send("Runtime.getHeapUsage"))["usedSize"]
    counters = cast(Answer, session.send("Memory.getDOMCounters"))
    session.detach()
    return Reading(
        updates, rows, heap, counters["nodes"], counters["jsEventListeners"], held(browser)
    )


def held(browser: Browser) -> int:
    """What the renderers' processes hold that is theirs alone."""
    session: CDPSession = browser.new_browser_cdp_session()
    answer = cast(Answer, session.send("SystemInfo.getProcessInfo"))
    session.detach()
    processes = cast("list[Answer]", answer["processInfo"])
    return sum(_anonymous_bytes(int(one["id"])) for one in processes if one["type"] == "renderer")


def _anonymous_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


_TITLE: Final = "updates: "
_QUICK_TIMERS: Final = """(() => {
  const after = window.setTimeout, every = window.setInterval, speed = %g;
  window.setTimeout = (work, ms = 0, ...rest) => after(work, ms / speed, ...rest);
  window.setInterval = (work, ms = 0, ...rest) => every(work, ms / speed, ...rest);
  const ask = window.fetch;
  let updates = 0;  // each begins by asking for the banner
  window.fetch = (what, ...rest) => {
    updates += String(what.url ?? what).endsWith("/fresh");
    document.title = `%s${updates}`;
    return ask(what, ...rest);
  };
})()"""


if __name__ == "__main__":
    main()
