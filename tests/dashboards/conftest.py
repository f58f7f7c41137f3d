"""A stack for each file of tests of it, with runs that are well and one that is not.

Not for the session: Prometheus looks twice a second, as long as it runs.
"""

import math
from collections.abc import Iterator
from functools import partial

import msgspec
import numpy as np
import pytest
from tests.dashboards.stack import Stack
from tests.proofs import proof, token_of
from tests.server.harness import LAYOUT, new_id

from runwatch.codec import CONTENT_TYPE, encode_frame
from runwatch.frames import Frame
from runwatch.vocabulary import RunId

METRICS = ("loss", "val_loss", "lr", "grad_norm", "loss_scale", "step_time", "tokens_per_s")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    running = Stack(tmp_path_factory.mktemp("stack"))
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def broken_run(stack: Stack) -> RunId:
    """A run whose loss and first layer are no numbers since step 3, and which Prometheus has
    scraped while it went on."""
    run_id = new_id()
    stack.ask("POST", "/runs", json={"run_id": run_id, "name": "broken", "project": "tests"})
    stack.ask(
        "POST", f"/runs/{run_id}/attempts", json={"token": token_of(run_id), "started_at": 1.7e9}
    )
    body = msgspec.json.encode(LAYOUT.to_document())
    stack.ask("PUT", f"/runs/{run_id}/layouts/{LAYOUT.hash}", body=body, headers=proof(run_id))
    seen = 'runwatch_run_last_step{{run_id="{}"}} == {}'
    for seq in range(1, 5):
        post(stack, run_id, seq)
        stack.knock()
        expression = seen.format(run_id, seq - 1)
        stack.until(partial(stack.has, expression), "the scrape")
    return run_id


def post(stack: Stack, run_id: RunId, seq: int) -> None:
    """A frame of one step: good up to step 2, then no number."""
    bad = seq > 2
    values = [math.nan if bad else 2.0, 2.5, 1e-3, 1.0, 65536.0, 0.1, 1e4]
    frame = Frame(
        attempt=1,
        rank=0,
        seq=seq,
        segment=0,
        first_step=seq - 1,
        times=np.array([1.7e9 + seq]),
        metric_names=METRICS,
        metrics=np.array([values]),
        layout_hash=LAYOUT.hash,
        stats=np.array([[math.nan if bad else 0.5, 0.25]], np.float32),
        events=(),
    )
    headers = {"Content-Type": CONTENT_TYPE} | proof(run_id)
    stack.ask("POST", f"/runs/{run_id}/frames", body=encode_frame(frame), headers=headers)
