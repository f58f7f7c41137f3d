"""A run whose layers changed midway: its heat map holds all of them, wherever its steps lie."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.server.harness import LAYOUT, Api, HandClock, Storage, both_engines, frame, serve
from tests.server.telemetry.packs.stored_run import DAY_S, packer, post

from runwatch.layouts import Layer, Layout
from runwatch.vocabulary import RunId
from runwatch_server.objects import ObjectStore

pytestmark = [pytest.mark.anyio, both_engines]

CHANGED_AT = 2200
NUM_STEPS = 4400
BLOCKS = tuple(f"blocks.{index}" for index in range(40))
WIDER = Layout(
    tuple(Layer(name) for name in ("first.weight", *BLOCKS)), ("grad_absmax", "grad_norm")
)
"""More than a tile's layers; without `last.weight`."""


@pytest.fixture
async def api(storage: Storage, hand_clock: HandClock, objects_url: str) -> AsyncIterator[Api]:
    async with serve(storage, clock=hand_clock, objects_url=objects_url) as api:
        yield api


async def send_changed_run(api: Api) -> RunId:
    """Of LAYOUT until CHANGED_AT, then of WIDER; each layer's norm is its step, or 10 000 more for
    the blocks. Ended."""
    run_id = await api.new_run()
    await api.put_layout(run_id, WIDER)
    for seq, first_step in enumerate(range(0, NUM_STEPS, 200), 1):
        steps = np.arange(first_step, first_step + 200, dtype=np.float32)
        sent = frame(seq, [1.0] * 200, first_step=first_step)
        if first_step < CHANGED_AT:
            sent = replace(sent, layout_hash=LAYOUT.hash, stats=np.stack([steps, steps], axis=1))
        else:
            norms = np.column_stack([steps, *(10_000 + steps for _ in BLOCKS)])
            stats = np.concatenate([np.zeros_like(norms), norms], axis=1)
            sent = replace(sent, layout_hash=WIDER.hash, stats=stats)
        await post(api, run_id, sent)
    close = {"status": "finished", "reason": "", "last_step": NUM_STEPS - 1, "rank": 0}
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json=close)
    return run_id


async def heat_map(api: Api, run_id: RunId, **window: int) -> dict[str, Any]:
    params = {"stat": "grad_norm", **window}
    found: dict[str, Any] = await api.json("GET", f"/runs/{run_id}/heatmap", params=params)
    return found


async def test_layers_of_all_layouts_are_rows_with_gaps_where_they_were_not(
    api: Api, hand_clock: HandClock, objects: ObjectStore
) -> None:
    run_id = await send_changed_run(api)
    near = {"from": CHANGED_AT - 2, "to": CHANGED_AT + 1}
    fine = await heat_map(api, run_id, **near)
    coarse = await heat_map(api, run_id, points=8)

    assert fine["layers"] == ["first.weight", "last.weight", *BLOCKS]
    assert fine["steps"] == [2198, 2199, 2200, 2201]
    assert fine["values"][0] == [2198, 2199, 2200, 2201]
    assert fine["values"][1] == [2198, 2199, None, None]
    assert fine["values"][-1] == [None, None, 12_200, 12_201]
    assert coarse["layers"] == fine["layers"]
    assert fine["nonfinite"] == coarse["nonfinite"] == []
    width = coarse["step_width"]
    ends = [min(step + width, NUM_STEPS) - 1 for step in coarse["steps"]]
    assert coarse["values"][0] == ends
    assert coarse["values"][1] == [
        None if step >= CHANGED_AT else min(end, CHANGED_AT - 1)
        for step, end in zip(coarse["steps"], ends, strict=True)
    ]
    assert coarse["values"][-1] == [None if end < CHANGED_AT else 10_000 + end for end in ends]

    while await api.services.roller.roll():
        pass
    assert await heat_map(api, run_id, points=8) == coarse

    hand_clock.now += 2 * DAY_S
    assert await packer(api, objects, hand_clock).run() > 0
    assert await heat_map(api, run_id, points=8) == coarse
    assert await heat_map(api, run_id, **near) == fine


async def test_an_older_layer_is_no_row_where_it_has_no_steps(api: Api) -> None:
    run_id = await send_changed_run(api)

    after = await heat_map(api, run_id, **{"from": CHANGED_AT})
    before = await heat_map(api, run_id, to=CHANGED_AT - 1)

    assert after["layers"] == ["first.weight", *BLOCKS]
    assert before["layers"] == ["first.weight", "last.weight", *BLOCKS]
