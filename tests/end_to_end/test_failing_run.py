"""A real training that ends with an error: who is on call is told of it, until it goes on."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tests.end_to_end.real_service import RealService
from tests.end_to_end.trainer import watched_by
from tests.server.notify.sink import Sink, running_sink
from tests.waiting import until

pytestmark = pytest.mark.heavy

_PROGRAM: Final = """
import sys
import torch
import runwatch_hooks

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
with runwatch_hooks.attach(model, optimizer, run="train") as watch:
    for step in range(30):
        optimizer.zero_grad()
        loss = (model(torch.randn(8, 4)) ** 2).mean()
        loss.backward()
        optimizer.step()
        watch.step(loss=loss)
    if sys.argv[1] == "fails":
        raise OSError("shard 3 is truncated")
"""


def train(how: str, service: RealService, folder: Path) -> str:
    """What the training printed."""
    environment = watched_by(service, number=1)
    trained = subprocess.run(
        [sys.executable, "-c", _PROGRAM, how],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "RUNWATCH_SPOOL": str(folder / "spool"), **environment},
        check=False,
    )
    return trained.stdout + trained.stderr


def told(sink: Sink, kind: str) -> list[str]:
    """The messages about the failure."""
    bodies = [body for body in sink.bodies if body["type"] == kind]
    return [body["message"] for body in bodies if "RunFailed" in body["title"]]


def test_an_error_that_ends_a_training_is_told_until_it_goes_on(tmp_path: Path) -> None:
    with running_sink() as sink:
        folder = tmp_path / "service"
        (folder / "data").mkdir(parents=True)
        team = f"{{name: team, url: 'json://127.0.0.1:{sink.port}/hook'}}"
        receivers = f"receivers: [{team}]\nallow_networks: [127.0.0.0/8]"
        (folder / "data" / "receivers.yaml").write_text(receivers)
        with RealService(folder, environment={"RUNWATCH_LOST_S": "15"}) as service:
            assert "OSError: shard 3 is truncated" in train("fails", service, tmp_path)
            until(lambda: told(sink, "failure"))
            (message,) = told(sink, "failure")
            assert "the run failed after step 29: OSError: shard 3 is truncated" in message

            assert "Error" not in train("ends", service, tmp_path)
            until(lambda: told(sink, "success"))
