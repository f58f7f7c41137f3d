"""How soon does one see something: the page of all runs, and of a run of a million steps?

A real `runwatch serve` process on SQLite and a real Chromium, whose window is new for each sample:
nothing is in its cache. The long run's frames are stored and summed up by the service's own code
before the service starts (judging a million steps of 300 layers is not what is measured here), and
recorded every step: 300 layers, one stat.

    python -m benchmarks.page --runs 1000 --steps 1000000 --layers 300
"""

import argparse
import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
from benchmarks.harness import machine, markdown_table
from playwright.sync_api import Browser, Page, sync_playwright
from tests.end_to_end.real_service import RealService
from tests.page.seeding import Sender, curve, layout_of

from runwatch.codec import encode_frame
from runwatch.frames import Frame
from runwatch.layouts import Layout
from runwatch.vocabulary import RunId
from runwatch_server.alerts.evaluation.progress_queries import note_passed_over
from runwatch_server.alerts.tables import evaluations
from runwatch_server.clock import Clock
from runwatch_server.db import Database, SqliteStore
from runwatch_server.monitoring.service_metrics import ServiceMetrics
from runwatch_server.runs.liveness import Liveness
from runwatch_server.settings import Settings
from runwatch_server.telemetry.committed_frames import CommittedFrame
from runwatch_server.telemetry.events import EventLog
from runwatch_server.telemetry.frame_budget import FrameBudget
from runwatch_server.telemetry.ingest import Ingest
from runwatch_server.telemetry.layout_store import Layouts
from runwatch_server.telemetry.packs.reading import PackReader
from runwatch_server.telemetry.roller import Roller

FRAME_STEPS: Final = 4096
PAINT: Final = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--layers", type=int, default=300)
    parser.add_argument("--samples", type=int, default=5)
    given = parser.parse_args()
    print(machine())
    with seeded(given.runs, given.steps, given.layers) as (service, run_id):
        rows = [
            *asked(service, run_id, given.steps, given.samples),
            *seen(service, run_id, given.steps, given.samples),
        ]
    print(markdown_table(["what", "median ms", "slowest ms", "wanted ms"], rows))


@contextmanager
def seeded(num_runs: int, num_steps: int, num_layers: int) -> Generator[tuple[RealService, RunId]]:
    """A service with so many runs, and with the long one."""
    with tempfile.TemporaryDirectory(prefix="runwatch-bench-") as name:
        service = RealService(Path(name))
        service.start()
        try:
            sender = Sender(service.url, service.admin_key)
            layout = layout_of(num_layers)
            short = Layout(layout.layers, ("grad_norm",))
            run_id = sender.open("the long one")
            sender.layout(run_id, short)
            sender.ask("POST", f"/runs/{run_id}/attempts/1/close", {"status": "finished"})
            others = [open_other(sender, index) for index in range(num_runs)]
            service.stop()
            asyncio.run(store(Path(name) / "data", run_id, short, num_steps, others))
            service.start()
            yield service, run_id
        finally:
            service.stop()


def open_other(sender: Sender, index: int) -> RunId:
    """One of the many; nine of ten have ended."""
    run_id = sender.open(f"run {index}", project=f"project {index % 7}")
    if index % 10:
        sender.ask("POST", f"/runs/{run_id}/attempts/1/close", {"status": "finished"})
    return run_id


async def store(
    data_dir: Path, run_id: RunId, layout: Layout, num_steps: int, others: Sequence[RunId]
) -> None:
    """Writes the runs' frames, marked as judged, and sums them up."""
    clock = Clock()
    async with Database(SqliteStore(data_dir)) as database:
        database.start()
        layouts = Layouts(database, clock)
        frame_budget = FrameBudget(Settings().frames_mib << 20)
        ingest = Ingest(
            database,
            clock,
            layouts=layouts,
            events=EventLog(clock),
            liveness=Liveness(),
            committed=_judge_nothing,
            metrics_per_run=Settings().metrics_per_run,
            frame_budget=frame_budget,
            on_out_of_order=note_passed_over,
            observer=ServiceMetrics(),
        )
        seq = 0
        for first_step in range(0, num_steps, FRAME_STEPS):
            seq += 1
            body = encode_frame(frame_of(layout, seq, first_step, num_steps))
            await ingest.put_frame(run_id, body, proven=1, late=True)
        for index, other in enumerate(others):
            await ingest.put_frame(other, encode_frame(short_frame(index)), proven=1, late=True)
        judged = [
            {"run_id": one, "attempt": 1, "rank": 0, "evaluated_seq": last, "state_seq": last,
             "state": b"", "rule_set": ""}
            for one, last in ((run_id, seq), *((other, 1) for other in others))
        ]  # fmt: skip
        await database.write(lambda connection: connection.execute(evaluations.insert(), judged))
        packs = PackReader(None, clock.monotonic)
        roller = Roller(database, layouts, packs, frame_budget)
        while await roller.roll():
            pass


def _judge_nothing(frame: CommittedFrame) -> None:
    """In the evaluators' place."""


def short_frame(index: int) -> Frame:
    metrics = curve(0, 200, seed=index)
    return Frame(
        attempt=1,
        rank=0,
        seq=1,
        segment=0,
        first_step=0,
        times=1.7e9 + 0.25 * np.arange(200.0),
        metric_names=tuple(metrics),
        metrics=np.stack(list(metrics.values()), axis=1),
    )


def frame_of(layout: Layout, seq: int, first_step: int, num_steps: int) -> Frame:
    size = min(FRAME_STEPS, num_steps - first_step)
    rng = np.random.default_rng(seq)
    metrics = curve(first_step, size)
    sizes = np.exp(np.random.default_rng(5).normal(-1, 1, len(layout.layers)))
    norms = sizes * rng.choice([0.75, 0.875, 1.0, 1.125, 1.25], (size, len(layout.layers)))
    return Frame(
        attempt=1,
        rank=0,
        seq=seq,
        segment=0,
        first_step=first_step,
        times=1.7e9 + 0.25 * np.arange(first_step, first_step + size, dtype=np.float64),
        metric_names=tuple(metrics),
        metrics=np.stack(list(metrics.values()), axis=1),
        layout_hash=layout.hash,
        stats=norms.astype(np.float16).astype(np.float32),
    )


def asked(service: RealService, run_id: RunId, num_steps: int, samples: int) -> list[list[object]]:
    """Of the API alone."""
    headers = {"Authorization": f"Bearer {service.admin_key}"}
    middle = {"from": num_steps // 3, "to": num_steps // 3 + num_steps // 10}
    series, loss = f"/runs/{run_id}/series", {"metric": "loss", "points": 1000}
    heatmap, norms = f"/runs/{run_id}/heatmap", {"stat": "grad_norm", "points": 500}
    questions: list[tuple[str, str, dict[str, Any], int]] = [
        ("fleet: 100 of all runs", "/fleet", {}, 100),
        ("series over all steps", series, loss, 100),
        ("series over a tenth", series, loss | middle, 100),
        ("heat map over all steps", heatmap, norms, 150),
        ("heat map over a tenth", heatmap, norms | middle, 150),
        ("heat map of 100 steps", heatmap, norms | {"from": 5000, "to": 5100}, 150),
    ]  # fmt: skip
    with httpx.Client(base_url=f"{service.url}/api/v1", headers=headers, timeout=60) as client:
        return [
            row(what, wanted, times(lambda: client.get(path, params=params), samples))  # noqa: B023
            for what, path, params, wanted in questions
        ]


def times(ask: Callable[[], httpx.Response], samples: int) -> list[float]:
    taken: list[float] = []
    for _ in range(samples):
        started = time.perf_counter()
        answer = ask()
        taken.append(1000 * (time.perf_counter() - started))
        assert answer.status_code == 200, answer.text
    return taken


def seen(service: RealService, run_id: RunId, num_steps: int, samples: int) -> list[list[object]]:
    """By somebody at a browser."""
    found: dict[str, list[float]] = {}
    path = shutil.which("chromium")
    assert path is not None, "Chromium is not installed"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for _ in range(samples):
            for what, taken in look(browser, service, run_id, num_steps).items():
                found.setdefault(what, []).append(taken)
        browser.close()
    return [row(what, _WANTED.get(what, ""), taken) for what, taken in found.items()]


_WANTED: Final = {
    "runs page: first contentful paint": 1500,
    "run page: first contentful paint": 1500,
    "heat map: asked for to drawn": 1000,
}


def look(browser: Browser, service: RealService, run_id: RunId, num_steps: int) -> dict[str, float]:
    context = browser.new_context()
    log_in(context.new_page(), service.url, service.admin_key)
    state = context.storage_state()
    context.close()
    found: dict[str, float] = {}
    cold = browser.new_context(
        base_url=service.url, viewport={"width": 1360, "height": 860}, storage_state=state
    )
    page = cold.new_page()
    page.goto("/")
    found["runs page: first contentful paint"] = page.evaluate(PAINT)
    cold.close()
    cold = browser.new_context(
        base_url=service.url, viewport={"width": 1360, "height": 860}, storage_state=state
    )
    page = cold.new_page()
    page.goto(f"/runs/{run_id}", wait_until="domcontentloaded")
    whole = f"0-{num_steps - 1}"
    page.wait_for_selector(f"#charts .chart[data-drawn='{whole}']", timeout=60_000)
    found["run page: first chart drawn"] = page.evaluate("() => performance.now()")
    found["run page: first contentful paint"] = page.evaluate(PAINT)
    page.locator("#layers").scroll_into_view_if_needed()
    page.wait_for_selector("#layers[data-drawn]", timeout=60_000)
    found["heat map: asked for to drawn"] = page.evaluate(_REDRAW)
    cold.close()
    return found


_REDRAW: Final = """async () => {
  const section = document.getElementById('layers');
  delete section.dataset.drawn;
  const began = performance.now();
  section.querySelector('[name=stat]').dispatchEvent(new Event('change'));
  while (!section.dataset.drawn) await new Promise(requestAnimationFrame);
  return performance.now() - began;
}"""


def log_in(page: Page, url: str, key: str) -> None:
    page.goto(f"{url}/login?next=/runbooks")
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(lambda url: "/login" not in url)


def row(what: str, wanted: object, taken: list[float]) -> list[object]:
    return [what, f"{statistics.median(taken):.0f}", f"{max(taken):.0f}", wanted]


if __name__ == "__main__":
    main()
