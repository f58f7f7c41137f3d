"""Frames of two kilobytes that are 61 MiB unpacked: they take no more memory than the budget, not
even after a restart, and another project's alerts do not wait for them."""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pytest
from tests.end_to_end.real_service import NOBODY_IS_MISSED, RealService
from tests.faults.sender import Sender
from tests.waiting import until

from runwatch.codec import encode_frame, join_frame, split_frame
from runwatch.frames import Frame
from runwatch.layouts import Layer, Layout

pytestmark = pytest.mark.heavy

WIDE: Final = Layout(
    tuple(Layer(f"layers.{index}") for index in range(1000)),
    ("grad_norm", "grad_absmax", "param_norm", "update_ratio"),
)
STEPS: Final = 4000
BOMBS: Final = 15
"""Of 61 MiB: more than 900 MiB in all."""
MOST_BYTES: Final = 700 * 2**20
"""The budget of frames (512 MiB) and what a service takes that has received a few of them."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RealService]:
    unlimited = {"RUNWATCH_UNPACKED_MIB_PER_S": "1e6"}
    with RealService(tmp_path / "service", environment=NOBODY_IS_MISSED | unlimited) as running:
        yield running


def send_bombs(sender: Sender, count: int) -> None:
    document = WIDE.to_document()
    sender.json("PUT", f"/runs/{sender.run_id}/layouts/{WIDE.hash}", document)
    header, block = split_frame(
        encode_frame(
            Frame(
                attempt=1,
                rank=0,
                seq=1,
                segment=0,
                first_step=0,
                times=np.full(STEPS, time.time()),
                metric_names=("loss",),
                metrics=np.ones((STEPS, 1)),
                layout_hash=WIDE.hash,
                stats=np.ones((STEPS, WIDE.num_columns), np.float32),
            )
        )
    )
    for index in range(count):
        one = msgspec.structs.replace(header, seq=index + 1, first_step=index * STEPS)
        sender.send_body(join_frame(one, block))


def nan_is_found(service: RealService, key: str) -> bool:
    """Whether the NaN of another project's run is found while bombs wait to be judged."""
    run = Sender.open(service.url, key, project="quiet")
    run.send(1, [2.0, 2.0], first_step=0)
    run.send(2, [math.nan], first_step=2)
    until(lambda: service.ask("GET", f"/alerts?run_id={run.run_id}")["alerts"])
    return service.num_waiting > 0


def test_bombs_take_no_more_than_the_budget_and_delay_no_other_project(
    service: RealService,
) -> None:
    key = service.create_key("ingest")
    for _ in range(3):
        send_bombs(Sender.open(service.url, key, project="bombs"), BOMBS // 3)

    assert nan_is_found(service, key)
    assert service.peak_bytes < MOST_BYTES

    service.kill()
    service.start()

    assert nan_is_found(service, key)
    assert service.peak_bytes < MOST_BYTES
