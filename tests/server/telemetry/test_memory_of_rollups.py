"""Rollups take no more memory than is meant for them, however many frames hold the same steps."""

import tracemalloc
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Final

import numpy as np
import pytest
from tests.server.harness import Api, frame

from runwatch.codec import encode_frame
from runwatch.frames import Frame
from runwatch.layouts import Layer, Layout
from runwatch_server.telemetry.frame_budget import FrameBudget
from runwatch_server.telemetry.queries import HotFrame
from runwatch_server.telemetry.roller import Roller
from runwatch_server.telemetry.stored_steps import Frames
from runwatch_server.telemetry.summing import UNIT, unit_tiles

MIB: Final = 2**20
WIDE: Final = Layout(tuple(Layer(f"layers.{index}") for index in range(1024)), ("grad_norm",))
FRAMES: Final = 40
"""Of 4 MiB: 160 MiB in all."""


def held(seq: int, value: float) -> HotFrame:
    body = encode_frame(
        Frame(
            attempt=1,
            rank=0,
            seq=seq,
            segment=0,
            first_step=0,
            times=np.zeros(UNIT),
            metric_names=("loss",),
            metrics=np.full((UNIT, 1), value),
            layout_hash=WIDE.hash,
            stats=np.full((UNIT, WIDE.num_columns), value, np.float32),
        )
    )
    return HotFrame(
        seq=seq, segment=0, first_step=0, num_steps=UNIT, layout_hash=WIDE.hash, body=body
    )


@contextmanager
def most_bytes(limit: int) -> Generator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def test_frames_of_the_same_steps_are_not_unpacked_all_at_once() -> None:
    stored = [held(seq, float(seq)) for seq in range(1, FRAMES + 1)]
    with most_bytes(64 * MIB):
        tiles = unit_tiles(Frames(stored, []).near, {WIDE.hash: WIDE}, 0)

    assert tiles == unit_tiles(Frames(stored[-1:], []).near, {WIDE.hash: WIDE}, 0)


class Recording(FrameBudget):
    """Notes what was asked for."""

    def __init__(self) -> None:
        super().__init__(512 * MIB)
        self.asked: list[int] = []

    def room(self, owner: str, num_bytes: int) -> AbstractAsyncContextManager[None]:
        self.asked.append(num_bytes)
        return super().room(owner, num_bytes)


@pytest.mark.anyio
async def test_a_rollup_asks_for_room_for_what_it_unpacks(api: Api) -> None:
    run_id, services, budget = await api.new_run(), api.services, Recording()
    sent = frame(1, np.ones(2 * UNIT), stats=np.ones((2 * UNIT, 2), np.float32))
    await api.post(run_id, sent)

    await Roller(services.database, services.layouts, services.packs, budget).roll()

    assert len(budget.asked) == 1
    assert sent.num_bytes < budget.asked[0] < 4 * sent.num_bytes
    assert budget.used_bytes == 0
