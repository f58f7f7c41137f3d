"""Four ranks under DDP and torchrun, a real service: what is commanded, all do at one step."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.ranks_job import NUM_RANKS, RanksJob, Told, unwatched
from tests.end_to_end.real_service import RealService
from tests.end_to_end.trainer import watched_by
from tests.waiting import until

pytestmark = pytest.mark.heavy

FAULT_STEP = 100
STEPS = 400


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> list[Told]:
    """What the ranks train without a fault, and without the hook."""
    return unwatched(tmp_path_factory.mktemp("ranks") / "clean", "--steps", str(STEPS))


@pytest.fixture
def jobs() -> Iterator[list[RanksJob]]:
    """Jobs that are ended with the test, however it ends."""
    started: list[RanksJob] = []
    yield started
    for job in started:
        job.end()


def test_a_bad_batch_of_one_rank_is_undone_on_all_at_one_step(
    tmp_path: Path, service: RealService, jobs: list[RanksJob], clean: list[Told]
) -> None:
    service.start()
    environment = watched_by(service, number=1, policy="auto")
    faulty = ("--fault-at", str(FAULT_STEP), "--slow-from", str(FAULT_STEP))
    options = ("--steps", str(STEPS), *faulty)
    jobs.append(RanksJob(tmp_path / "job", *options, environment=environment))

    told = jobs[0].finish()

    turns = {tuple(one.turns()) for one in told}
    assert len(turns) == 1
    ((noticed, back_to),) = turns.pop()
    assert noticed >= FAULT_STEP >= back_to
    assert [one.state for one in told] == [one.state for one in clean]
    assert [one.losses() for one in told] == [one.losses() for one in clean]
    assert len({one.parameters for one in told}) == 1
    command = until(lambda: rollback_of(service, environment["RUNWATCH_RUN_ID"]))
    assert [(one["rank"], one["state"], one["step"]) for one in command["receipts"]] == [
        (rank, "applied", noticed + 1) for rank in range(NUM_RANKS)
    ]
    assert {one["detail"]["to_step"] for one in command["receipts"]} == {back_to - 1}
    history = service.ask("GET", f"/runs/{environment['RUNWATCH_RUN_ID']}/history")
    assert [one["host"] for one in history["ranks"]] == [socket.gethostname()] * NUM_RANKS


def test_a_job_obeys_by_hand_and_resumes_on_all_ranks_as_if_never_stopped(
    tmp_path: Path, service: RealService, jobs: list[RanksJob], clean: list[Told]
) -> None:
    service.start()
    environment = watched_by(service, number=1)
    run_id = environment["RUNWATCH_RUN_ID"]
    endless = ("--steps", "100000", "--slow-from", "20", "--checkpoints")
    job = RanksJob(tmp_path / "job", *endless, environment=environment)
    jobs.append(job)
    until(lambda: job.num_trained() > 20)

    saved = obeyed(service, run_id, {"kind": "checkpoint"})
    slowed = obeyed(service, run_id, {"kind": "lower_lr", "scale": 0.5})
    stopped = obeyed(service, run_id, {"kind": "stop"})
    told = job.finish()

    for command in (saved, slowed, stopped):
        assert len(command["receipts"]) == NUM_RANKS
        assert len({one["step"] for one in command["receipts"]}) == 1
    assert len({row_where(one, "lr_scale", 0.5) for one in told}) == 1
    assert len({row_where(one, "stop", True) for one in told}) == 1
    assert len({one.parameters for one in told}) == 1

    options = ("--steps", str(STEPS), "--checkpoints")
    jobs.append(RanksJob(tmp_path / "job", *options, environment=environment))
    resumed = jobs[1].finish()

    first = saved["receipts"][0]["step"]
    assert 0 < first < STEPS
    assert {one.trained[0]["step"] for one in resumed} == {first}
    assert [one.state for one in resumed] == [one.state for one in clean]


def test_a_checkpoint_that_one_rank_finds_damaged_is_gone_back_to_by_none(
    tmp_path: Path, service: RealService, jobs: list[RanksJob]
) -> None:
    service.start()
    environment = watched_by(service, number=1)
    run_id = environment["RUNWATCH_RUN_ID"]
    job = RanksJob(tmp_path / "job", "--steps", "100000", "--checkpoints", environment=environment)
    jobs.append(job)
    until(lambda: job.num_trained() > 20)
    damaged = obeyed(service, run_id, {"kind": "checkpoint"})["receipts"][0]["step"] - 1
    sound = obeyed(service, run_id, {"kind": "checkpoint"})["receipts"][0]["step"] - 1
    (file,) = (tmp_path / "job/checkpoints/rank-00002").glob(f"step-{damaged:09d}-*.pt")
    octets = bytearray(file.read_bytes())
    octets[len(octets) // 2] ^= 0xFF
    file.write_bytes(octets)
    until(lambda: job.num_trained() > sound + 100)  # no snapshot in memory is as old

    refused = obeyed(service, run_id, {"kind": "rollback", "to_step": damaged}, state="failed")
    done = obeyed(service, run_id, {"kind": "rollback", "to_step": sound})
    obeyed(service, run_id, {"kind": "stop"})
    told = job.finish()

    answers = until(lambda: answers_of_all(service, refused["id"]))
    assert [one["state"] for one in answers] == ["failed"] * NUM_RANKS
    (error,) = {one["detail"]["error"] for one in answers}
    assert "no good state that every rank holds" in error
    assert "rank 2: none" in error
    assert {one["detail"]["to_step"] for one in done["receipts"]} == {sound}
    assert {back_to for one in told for _, back_to in one.turns()} == {sound + 1}
    assert len({one.parameters for one in told}) == 1


def rollback_of(service: RealService, run_id: str) -> Any:
    """The one rollback that was applied, with what each rank answered to it; None before."""
    found = service.ask("GET", f"/runs/{run_id}/commands")["commands"]
    applied = [
        one for one in found if (one["action"]["kind"], one["state"]) == ("rollback", "applied")
    ]
    if not applied:
        return None
    (rollback,) = applied
    return service.ask("GET", f"/commands/{rollback['id']}")


def obeyed(
    service: RealService, run_id: str, action: dict[str, object], *, state: str = "applied"
) -> Any:
    """A command, once it has ended, and how."""
    ordered = service.ask("POST", f"/runs/{run_id}/commands", {"action": action})
    return until(lambda: has_ended(service.ask("GET", f"/commands/{ordered['id']}"), state=state))


def answers_of_all(service: RealService, command_id: str) -> Any:
    """Each rank's receipt; None before all have come."""
    receipts = service.ask("GET", f"/commands/{command_id}")["receipts"]
    return receipts if len(receipts) == NUM_RANKS else None


def has_ended(command: Any, *, state: str) -> Any:
    """The command in its last state, which must be this one; None before."""
    assert command["state"] in ("queued", "delivered", "accepted", state), command
    return command if command["state"] == state else None


def row_where(told: Told, key: str, value: object) -> int:
    """The first step that was reported with a value."""
    steps: list[int] = [row["step"] for row in told.trained if row[key] == value]
    return steps[0]
