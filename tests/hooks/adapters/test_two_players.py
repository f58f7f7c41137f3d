"""What a module logs in its steps, where it steps several optimizers and returns no loss."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.hooks.transport.stub_service import TOKEN, StubService, serving

pytestmark = pytest.mark.heavy

PROGRAM = Path(__file__).with_name("two_players.py")


def numbers(service: StubService, metric: str) -> list[float]:
    found: list[float] = []
    for frame in service.frames.values():
        if metric in frame.metric_names:
            found += frame.metrics[:, frame.metric_names.index(metric)].tolist()
    return found


def test_what_a_lightning_module_logs_in_a_step_is_in_its_row(tmp_path: Path) -> None:
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

    losses = json.loads((tmp_path / "losses.json").read_text())
    assert numbers(service, "g_loss") == pytest.approx(losses)
    assert numbers(service, "user/lr") == [0.5] * 4, "theirs hides none of ours"
    assert numbers(service, "lr") == pytest.approx([0.1] * 4)
    assert [value for value in numbers(service, "now_and_then") if value == value] == [1, 3]
    assert len([value for value in numbers(service, "val_loss") if value == value]) == 2
