"""A person's hands on a run, by the command line: policy, approval, and commands of one's own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.real_service import RealService
from tests.end_to_end.trainer import ENDLESS, Trainer, watched_by
from tests.waiting import LONGEST_S, until

pytestmark = pytest.mark.slow


class Shell:
    """`runwatch` with a key that may control."""

    def __init__(self, service: RealService) -> None:
        key = service.create_key("control", "read")
        self._environment = os.environ | {"RUNWATCH_URL": service.url, "RUNWATCH_TOKEN": key}

    def run(self, *arguments: str) -> Any:
        """What a command says with --json."""
        done = subprocess.run(
            [sys.executable, "-m", "runwatch_server.cli", *arguments, "--json"],
            env=self._environment,
            capture_output=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)


@pytest.fixture
def shell(service: RealService) -> Shell:
    service.start()
    return Shell(service)


@pytest.fixture
def jobs() -> Iterator[list[Trainer]]:
    """Trainers that are ended with the test, however it ends."""
    started: list[Trainer] = []
    yield started
    for job in started:
        job.process.kill()
        job.process.wait()


def test_a_proposal_waits_for_a_person_and_is_carried_out_once_approved(
    tmp_path: Path, service: RealService, shell: Shell, jobs: list[Trainer]
) -> None:
    environment = watched_by(service, number=1)
    run_id = environment["RUNWATCH_RUN_ID"]
    assert shell.run("policy", run_id, "ask")["policy"] == "ask"
    jobs.append(
        Trainer(tmp_path / "job", "--fault-at", "100", environment=environment, steps=ENDLESS)
    )

    proposed = until(lambda: commands(service, run_id, "rollback", "proposed"))
    shell.run("approve", proposed["id"])

    applied = until(lambda: commands(service, run_id, "rollback", "applied"))
    assert applied["id"] == proposed["id"]
    assert applied["detail"]["to_step"] < 100


def test_a_run_obeys_the_commands_it_is_given(
    tmp_path: Path, service: RealService, shell: Shell, jobs: list[Trainer]
) -> None:
    environment = watched_by(service, number=1)
    run_id = environment["RUNWATCH_RUN_ID"]
    checkpoints = tmp_path / "checkpoints"
    options = ("--checkpoints", str(checkpoints))
    job = Trainer(tmp_path / "job", *options, environment=environment, steps=ENDLESS)
    jobs.append(job)
    until(lambda: len(job.trained()) > 20)

    shell.run("signal", run_id, "checkpoint")
    until(lambda: commands(service, run_id, "checkpoint", "applied"))
    assert list(checkpoints.glob("*.pt"))

    shell.run("signal", run_id, "detail", "--steps", "3")
    until(lambda: commands(service, run_id, "detail", "applied"))
    until(lambda: len(layouts(service, run_id)) == 2)
    of_parameters, of_modules = layouts(service, run_id)
    until(lambda: len(histograms(service, run_id, "gradients", of_parameters[0])) == 3)
    until(lambda: len(histograms(service, run_id, "activations", of_modules[-1])) == 3)

    shell.run("signal", run_id, "lower-lr", "--scale", "0.5")
    until(lambda: commands(service, run_id, "lower_lr", "applied"))
    until(lambda: 0.5 in service.ask("GET", f"/runs/{run_id}/series?metric=lr_scale")["values"])

    shell.run("signal", run_id, "stop")
    assert job.process.wait(LONGEST_S) == 0
    until(lambda: service.ask("GET", f"/runs/{run_id}")["state"] == "stopped")


def layouts(service: RealService, run_id: str) -> list[list[str]]:
    """The layers of each layout that a run has sent, oldest first."""
    return [one["layers"] for one in service.ask("GET", f"/runs/{run_id}/metrics")["layouts"]]


def histograms(service: RealService, run_id: str, kind: str, layer: str) -> Any:
    path = f"/runs/{run_id}/histograms?kind={kind}&layer={layer}&steps=10"
    return service.ask("GET", path)["histograms"]


def commands(service: RealService, run_id: str, kind: str, state: str) -> Any:
    """The first command of a kind that is in a state, if there is one."""
    found = service.ask("GET", f"/runs/{run_id}/commands")["commands"]
    matching = (one for one in found if (one["action"]["kind"], one["state"]) == (kind, state))
    return next(matching, None)
