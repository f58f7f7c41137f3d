"""A training that was interrupted leaves nothing behind for the next one in the same process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.hooks.transport.stub_service import TOKEN, StubService, serving

pytestmark = pytest.mark.heavy

PROGRAM = Path(__file__).with_name("interrupted_trainer.py")


def losses(service: StubService) -> list[float]:
    found: list[float] = []
    for frame in service.frames.values():
        if "loss" in frame.metric_names:
            found += frame.metrics[:, frame.metric_names.index("loss")].tolist()
    return found


def test_a_trainer_that_trains_again_after_an_interruption_counts_each_loss_once(
    tmp_path: Path,
) -> None:
    with serving(StubService()) as service:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), str(tmp_path)],
            env=os.environ | {"RUNWATCH_URL": service.url, "RUNWATCH_TOKEN": TOKEN},
            cwd=tmp_path,
            capture_output=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    (first, *rest) = losses(service)

    assert rest == [pytest.approx(first)] * 2
    assert [closing.status for closing in service.closings] == ["failed", "finished"]
