"""A run with all that makes reading hard, and the packer that packs it small."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.server.harness import LAYOUT, Api, HandClock, frame

from runwatch.frames import Event, Frame
from runwatch.histograms import NUM_BINS, HistogramKind, pack_histograms
from runwatch.nonfinite import ABSENT_32, ABSENT_64
from runwatch.vocabulary import RunId
from runwatch_server.monitoring.service_metrics import ServiceMetrics
from runwatch_server.objects import ObjectStore
from runwatch_server.telemetry.packs.packing import Packer, PackLimits

DAY_S = 86_400.0
SMALL = PackLimits(pack_bytes=8_000, least_bytes=1)
PAYLOAD_NAN = np.uint32(0xFFC12345).view(np.float32)
"""A NaN that says something of its own: it must come back with every bit."""


def packer(api: Api, objects: ObjectStore, hand: HandClock, limits: PackLimits = SMALL) -> Packer:
    database = api.services.database
    return Packer(
        database, objects, hand.clock(), after_s=DAY_S, observer=ServiceMetrics(), limits=limits
    )


def stats(
    num_steps: int, rng: np.random.Generator, *, special: bool = False
) -> NDArray[np.float32]:
    """(N, 2); `special`: with NaNs of several kinds, infinities and 'not recorded'. Few frames
    have them: each is an alert, and their judging takes longer than all else in these tests."""
    values = rng.lognormal(size=(num_steps, LAYOUT.num_columns)).astype(np.float32)
    for number in (np.nan, np.inf, -np.inf, PAYLOAD_NAN, ABSENT_32) if special else ():
        values[rng.integers(num_steps), rng.integers(LAYOUT.num_columns)] = number
    return values


def losses(num_steps: int, rng: np.random.Generator) -> list[float]:
    values = rng.normal(size=num_steps)
    values[rng.integers(num_steps)] = ABSENT_64
    return list(values)


async def post(api: Api, run_id: RunId, sent: Frame) -> None:
    response = await api.post(run_id, sent)
    assert response.status_code == 200, response.text


async def send_hard_run(api: Api) -> RunId:
    """Two attempts, two ranks, a rollback, events, a metric logged afterwards; ended."""
    rng = np.random.default_rng(7)
    run_id = await api.new_run(world_size=2)
    for seq in range(1, 9):
        values = stats(200, rng, special=seq in (2, 7))
        await post(api, run_id, frame(seq, losses(200, rng), first_step=200 * seq, stats=values))
    note = Event(step=1790, kind="rollback", at=1.7e9, detail={"to": 1500})
    await post(api, run_id, frame(9, [], first_step=1799, events=(note,)))
    await post(api, run_id, frame(10, [0.5], first_step=1234, metric="val_loss"))
    for seq in range(11, 15):
        first_step = 1500 + 200 * (seq - 11)
        sent = frame(seq, losses(200, rng), first_step=first_step, segment=1)
        await post(api, run_id, replace(sent, layout_hash=LAYOUT.hash, stats=stats(200, rng)))
    counts = np.ones((1, NUM_BINS), np.int64)
    histograms = pack_histograms(2300, HistogramKind.GRADIENTS, ("last.weight",), counts)
    bare = frame(15, [], first_step=2300, segment=1)  # stored without what it brings
    await post(api, run_id, replace(bare, histograms=tuple(histograms)))
    for seq in range(1, 5):
        of_rank = frame(seq, losses(200, rng), first_step=200 * seq)
        await post(api, run_id, replace(of_rank, rank=1))
    attempt = await api.new_attempt(run_id, started_at=1.8e9)
    for seq in range(1, 6):
        values = stats(200, rng, special=seq == 3)
        sent = frame(
            seq, losses(200, rng), first_step=2000 + 200 * seq, stats=values, attempt=attempt
        )
        await post(api, run_id, sent)
    close = {"status": "finished", "reason": "", "last_step": 3199, "rank": 0}
    await api.json("POST", f"/runs/{run_id}/attempts/{attempt}/close", json=close)
    return run_id


async def all_that_is_read(api: Api, run_id: RunId) -> dict[str, Any]:
    """The answers of every route that reads telemetry."""
    found: dict[str, Any] = {}
    for metric, rank, points in (("loss", 0, 100), ("loss", 1, 10_000), ("val_loss", 0, 10_000)):
        found[f"{metric} {rank}"] = await api.series(
            run_id, metric=metric, rank=rank, points=points
        )
    windows: tuple[dict[str, int], ...] = ({}, {"attempt": 1, "segment": 0}, {"from": 950})
    for window in windows:
        found[f"layer {window}"] = await api.series(
            run_id, layer="last.weight", stat="grad_norm", points=10_000, **window
        )
    params = {"stat": "grad_norm", "points": 2000, "from": 1000}
    found["heat map"] = await api.json("GET", f"/runs/{run_id}/heatmap", params=params)
    for path in ("history", "timeline", "metrics"):
        found[path] = await api.json("GET", f"/runs/{run_id}/{path}")
    found["backtest"] = await api.json("POST", "/rules/backtest", json={"run_id": run_id})
    return found
