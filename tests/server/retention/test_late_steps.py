"""What a trainer delivers after the frames beside it were removed for their age: it is in the sums
that stand for them, once, as if it had come in time."""

from collections.abc import AsyncIterator, Collection
from typing import Any

import numpy as np
import pytest
from tests.server.harness import Api, HandClock, Storage, both_engines, frame, serve

from runwatch.frames import Frame
from runwatch.vocabulary import RunId

pytestmark = [pytest.mark.anyio, both_engines]

EDGES = (*range(0, 16_001, 2000), 17_500, 19_500, 20_000)
"""Frame k holds the steps from one to the next; up to 19 456 they are summed up, in the tenth."""


@pytest.fixture
async def api(storage: Storage, hand_clock: HandClock) -> AsyncIterator[Api]:
    async with serve(storage, clock=hand_clock, evidence_days=30) as api:
        yield api


def part(seq: int) -> Frame:
    first_step, end = EDGES[seq - 1], EDGES[seq]
    losses = np.random.default_rng(seq).normal(3.0, 0.1, end - first_step)
    losses[5] = np.nan
    stats = np.full((end - first_step, 2), seq, np.float32)
    return frame(seq, losses, first_step=first_step, stats=stats)


async def aged_run(api: Api, *, without: Collection[int] = ()) -> RunId:
    """Ended and summed up."""
    run_id = await api.new_run()
    for seq in range(1, len(EDGES)):
        if seq not in without:
            assert (await api.post(run_id, part(seq))).status_code == 200
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})
    await api.services.roller.roll()
    return run_id


async def charts(api: Api, run_id: RunId) -> list[Any]:
    """Step by step and summed up at each level: 64 steps and 512."""
    layer = {"layer": "last.weight", "stat": "grad_norm"}
    halves = ({"to": 9999, "points": 10_000}, {"from": 10_000, "points": 10_000})
    found = [
        await api.series(run_id, **series, **span)
        for series in ({"metric": "loss"}, layer)
        for span in (*halves, {"points": 200}, {"points": 30})
    ]
    return [answer | {"run_id": ""} for answer in found]


async def test_late_steps_are_added_once_to_what_stands_for_removed_frames(
    api: Api, hand_clock: HandClock
) -> None:
    in_time, late = await aged_run(api), await aged_run(api, without=(3, 10))
    hand_clock.now += 31 * 86_400.0
    await api.services.retention.remove_due()
    whole = await charts(api, in_time)
    with_holes = await charts(api, late)

    for seq in (10, 3, 3):
        assert (await api.post(late, part(seq), late=True)).status_code == 200
    at_once = await charts(api, late)
    removed = await api.services.retention.remove_due()
    await api.services.roller.roll()

    assert at_once == whole != with_holes
    assert removed.num_frames == 2  # the third and the tenth
    assert await charts(api, late) == whole
