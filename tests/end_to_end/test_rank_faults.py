"""`examples/ddp.py` under torchrun, against a real service: each rank speaks for itself."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.end_to_end.real_service import RealService
from tests.end_to_end.trainer import bring_in, watched_by
from tests.forking import torchrun
from tests.waiting import LONGEST_S, until

pytestmark = pytest.mark.heavy

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
FOR_EVER: Final = "10000000"


class Job:
    """A program of the examples on several processes."""

    def __init__(
        self,
        folder: Path,
        program: str,
        *options: str,
        environment: dict[str, str],
        num_ranks: int = 2,
    ) -> None:
        folder.mkdir()
        self.output = folder / "output.txt"
        self.run_id = environment["RUNWATCH_RUN_ID"]
        self._spool = folder / "spool"
        self._environment = {
            **os.environ,
            "RUNWATCH_SPOOL": str(self._spool),
            **environment,
        }
        self.process = torchrun(
            EXAMPLES / program,
            options,
            num_ranks=num_ranks,
            output=self.output,
            environment=self._environment,
            folder=folder,
        )

    def finish(self) -> None:
        """Also what did not arrive in the ten seconds that a run's end waits."""
        assert self.process.wait(LONGEST_S) == 0, self.output.read_text()[-4000:]
        bring_in(self._spool, self._environment)

    def stop(self) -> None:
        """All of it: the launcher ends its ranks."""
        if self.process.poll() is None:
            for pid in self.pids():
                os.kill(pid, signal.SIGCONT)
            self.process.terminate()
            self.process.wait(LONGEST_S)

    def pids(self) -> list[int]:
        """The ranks' processes, in the order of their ranks."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RealService]:
    """One that does not wait as long as usual, but for more than two heartbeats, before it calls
    somebody lost: one of them may be late."""
    with RealService(tmp_path / "service", environment={"RUNWATCH_LOST_S": "30"}) as running:
        yield running


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    """Jobs that are ended with the test, however it ends."""
    started: list[Job] = []
    yield started
    for job in started:
        job.stop()


def alerts(service: RealService, run_id: str, rule: str) -> list[dict[str, Any]]:
    found = service.ask("GET", f"/alerts?run_id={run_id}&limit=500")["alerts"]
    return [alert for alert in found if alert["rule"] == rule]


def firing(service: RealService, run_id: str, rule: str) -> list[dict[str, Any]]:
    return [one for one in alerts(service, run_id, rule) if one["state"] == "firing"]


def of_rank(rank: int, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [alert for alert in found if alert["rank"] == rank]


def test_every_rank_s_numbers_arrive_under_one_attempt_and_its_own_fault_under_its_name(
    tmp_path: Path, service: RealService, jobs: list[Job]
) -> None:
    environment = watched_by(service, number=1)
    options = ("--steps", "60", "--nan-loss", "1:50")
    jobs.append(Job(tmp_path / "job", "ddp.py", *options, environment=environment))
    jobs[0].finish()
    run = f"/runs/{jobs[0].run_id}"

    until(lambda: service.ask("GET", run)["state"] == "finished")
    [attempt] = service.ask("GET", f"{run}/attempts")["attempts"]
    assert (attempt["world_size"], attempt["status"]) == (2, "finished")
    for rank in (0, 1):
        losses = service.ask("GET", f"{run}/series?metric=loss&rank={rank}")
        assert losses["steps"] == list(range(60))
    norms = service.ask("GET", f"{run}/series?metric=grad_norm&rank=0")["values"]
    assert "NaN" not in norms[:50]
    assert norms[50] == "NaN"
    assert service.ask("GET", f"{run}/series?metric=grad_norm&rank=1")["steps"] == []
    until(lambda: len(alerts(service, jobs[0].run_id, "NonFinite")) == 2)
    found = {a["rank"]: a for a in alerts(service, jobs[0].run_id, "NonFinite")}
    assert {rank: a["onset_step"] for rank, a in found.items()} == {0: 50, 1: 50}
    assert found[1]["labels"]["rank"] == "1"
    assert sorted(a["inhibited_by"] or "" for a in found.values()) == ["", "NonFinite"]


def test_a_rank_whose_weights_drift_is_named(
    tmp_path: Path, service: RealService, jobs: list[Job]
) -> None:
    environment = watched_by(service, number=1)
    # A bare loop would run away from a service that has less of a busy machine than two ranks.
    options = ("--steps", FOR_EVER, "--drift", "1:200", "--slow", "0:0")
    jobs.append(Job(tmp_path / "job", "ddp.py", *options, environment=environment))

    [alert] = until(lambda: firing(service, jobs[0].run_id, "ReplicaDrift"))

    assert alert["rank"] == 1
    assert "the parameters of rank 1 differ" in alert["summary"]


def test_the_rank_that_all_wait_for_is_named_and_so_is_the_one_with_broken_labels(
    tmp_path: Path, service: RealService, jobs: list[Job]
) -> None:
    environment = watched_by(service, number=1)
    options = ("--steps", FOR_EVER, "--slow", "2:300", "--noise", "3:300")
    jobs.append(Job(tmp_path / "job", "ddp.py", *options, environment=environment, num_ranks=4))

    # On a busy machine another rank may have been told of, too, and this one before it was slowed;
    # and its standing among the others, which they exchange once a second, may come late.
    run = f"/runs/{jobs[0].run_id}"
    until(lambda: (service.ask("GET", run)["last_step"] or 0) >= 400)
    [slow] = until(lambda: of_rank(2, firing(service, jobs[0].run_id, "Straggler")))
    [apart] = until(lambda: firing(service, jobs[0].run_id, "RankDisagrees"))

    assert slow["labels"]["rank"] == "2"
    assert (apart["rank"], apart["labels"]["rank"]) == (3, "3")
    assert apart["onset_step"] >= 300


def test_the_rank_that_stands_still_is_named_with_its_line_while_the_others_wait_for_it(
    tmp_path: Path, service: RealService, jobs: list[Job]
) -> None:
    environment = watched_by(service, number=1)
    # Slowed too, so that it trains for half a minute on any machine: a run's pace has to be known.
    options = ("--steps", FOR_EVER, "--slow", "2:0", "--hang", "1:600")
    jobs.append(Job(tmp_path / "job", "ddp.py", *options, environment=environment, num_ranks=3))

    [alert] = until(lambda: firing(service, jobs[0].run_id, "StepOverdue"))

    on_host = f"rank 1 on {socket.gethostname()} stands in the program's own code (examples/ddp.py:"
    others = "the others stand in the backward pass (examples/ddp.py:"
    assert on_host in alert["summary"]
    assert others in alert["summary"]
    diagnosis = service.ask("GET", f"/alerts/{alert['id']}")["card"]
    assert [(one["rank"], one["is_apart"]) for one in diagnosis["stalled"]] == [
        (1, True),
        (0, False),
        (2, False),
    ]
    assert diagnosis["causes"][0]["cause"] == "a collective in which one rank is missing"


def test_a_rank_that_hangs_is_lost_while_the_other_waits_for_it(
    tmp_path: Path, service: RealService, jobs: list[Job]
) -> None:
    environment = watched_by(service, number=1)
    jobs.append(Job(tmp_path / "job", "ddp.py", "--steps", FOR_EVER, environment=environment))
    run = f"/runs/{jobs[0].run_id}"
    until(lambda: (service.ask("GET", run)["last_step"] or 0) > 20)
    os.kill(jobs[0].pids()[1], signal.SIGSTOP)

    [alert] = until(lambda: firing(service, jobs[0].run_id, "RankLost"))

    assert (alert["rank"], alert["labels"]["rank"]) == (1, "1")
    assert alerts(service, jobs[0].run_id, "RunLost") == []


def test_a_restart_by_torchrun_is_the_next_attempt_of_the_same_run(
    tmp_path: Path, service: RealService
) -> None:
    environment = watched_by(service, number=1)
    known = environment.pop("RUNWATCH_RUN_ID")
    environment["RUNWATCH_RUN_ID"] = ""  # the job names its run by itself, and finds it again
    # Else torch 2.13 lets gloo read the addresses of the first life, which nobody hears any more.
    environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    environment["RUNWATCH_SPOOL"] = str(tmp_path / "spool")
    # Its ranks are interpreters of their own, as a user's are.
    launcher = ("torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1")
    program = (str(EXAMPLES / "ddp.py"), "--steps", "40", "--fail", "1:20")
    done = subprocess.run(
        [sys.executable, "-m", *launcher, *program],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=tmp_path,
        env=os.environ | environment,
        check=False,
        timeout=LONGEST_S,
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    bring_in(tmp_path / "spool", os.environ | environment)

    [run_id] = [run["id"] for run in service.ask("GET", "/runs")["runs"] if run["id"] != known]
    attempts = service.ask("GET", f"/runs/{run_id}/attempts")["attempts"]
    assert [attempt["attempt"] for attempt in attempts] == [1, 2]
    assert attempts[0]["reason"] == "rank 1: RuntimeError: asked to fail"
    assert attempts[1]["status"] == "finished"
