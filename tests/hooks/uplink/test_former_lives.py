"""What a life of a run has left, brought in by the next one."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest
from tests.hooks.uplink.factories import ATTEMPT, KILLED, started, train
from tests.hooks.uplink.stub_service import Fault, StubService
from tests.waiting import until

from runwatch.ulids import ulid
from runwatch_hooks.uplink.spool import SpoolFolder

NEXT = msgspec.structs.replace(ATTEMPT, token=ulid(1_700_000_000_002, b"0123456789"))
LATER = msgspec.structs.replace(ATTEMPT, token=ulid(1_700_000_000_003, b"0123456789"))

KILLED_AT_FIRST_FRAME = """
import os, sys
from pathlib import Path
from tests.hooks.uplink.factories import started, train
from tests.waiting import until
from runwatch_hooks.uplink.spool import Spool
append = Spool.append
def append_and_die(spool, payload):
    append(spool, payload)
    os.kill(os.getpid(), 9)
Spool.append = append_and_die
train(started(Path(sys.argv[1])), 50)
until(lambda: False)
"""

LOCKING = """
import sys
from pathlib import Path
from runwatch_hooks.uplink.spool import SpoolFolder
SpoolFolder(Path(sys.argv[1])).lock()
"""


def steps_of(service: StubService, token: str) -> list[int]:
    number = list(service.attempts).index(token) + 1 if token in service.attempts else 0
    ordered = [service.frames[key] for key in sorted(service.frames) if key[0] == number]
    return [frame.first_step + i for frame in ordered for i in range(frame.num_steps)]


def is_gone(spool: Path) -> bool:
    return not spool.exists()


def test_what_a_killed_life_left_comes_in_beside_the_next_ones_steps(
    tmp_path: Path, service: StubService
) -> None:
    killed = [sys.executable, "-c", KILLED, str(tmp_path), "0"]
    assert subprocess.run(killed, check=False).returncode == -9
    (left,) = tmp_path.glob("*/*")

    uplink = started(tmp_path, service.url, attempt=NEXT)
    train(uplink, 10, first_step=50)
    until(partial(is_gone, left))
    uplink.close("finished")

    assert steps_of(service, ATTEMPT.token) == list(range(50))
    assert steps_of(service, NEXT.token) == list(range(50, 60))
    assert not service.attempts[ATTEMPT.token].live
    assert [end.status for end in service.closings] == ["failed", "finished"]
    assert list(tmp_path.iterdir()) == []


def test_another_ranks_spool_is_that_ranks_to_bring_in(
    tmp_path: Path, service: StubService
) -> None:
    ranks = [started(tmp_path, rank=rank) for rank in (0, 10)]
    for uplink in ranks:
        train(uplink, 5)
        uplink.close("finished")

    uplink = started(tmp_path, service.url, attempt=NEXT)
    train(uplink, 5)
    until(partial(is_gone, ranks[0].spool_path))
    uplink.close("finished")

    assert not is_gone(ranks[1].spool_path)


def test_the_spool_of_a_life_that_goes_on_is_left_alone(
    tmp_path: Path, service: StubService
) -> None:
    """In this very process, whose locks keep only others out."""
    living = started(tmp_path)
    train(living, 5)
    until((living.spool_path / "meta.json").exists)  # once the folder is locked
    ended = started(tmp_path, attempt=NEXT)
    ended.close("finished")

    uplink = started(tmp_path, service.url, attempt=LATER)
    until(partial(is_gone, ended.spool_path))  # which comes after the other
    uplink.close("finished")

    other = [sys.executable, "-c", LOCKING, str(living.spool_path)]
    locking = subprocess.run(other, check=False, capture_output=True, text=True)
    assert "BlockingIOError" in locking.stderr  # its lock has held
    assert living.spool_path.exists()
    assert ATTEMPT.token not in service.attempts
    living.close("finished")


def test_a_spool_that_is_refused_holds_up_no_other(tmp_path: Path, service: StubService) -> None:
    refused, sound = started(tmp_path), started(tmp_path, attempt=NEXT)
    for before in (refused, sound):
        train(before, 5)
        before.close("finished")
    service.frame_faults.append(Fault.STALE)  # for the first frame that comes
    uplink = started(tmp_path, service.url, attempt=LATER)
    until(partial(is_gone, sound.spool_path))
    uplink.close("finished")

    assert not is_gone(refused.spool_path)
    assert steps_of(service, NEXT.token) == list(range(5))


def test_a_life_that_ends_with_its_first_frame_has_left_all_that_the_frame_needs(
    tmp_path: Path, service: StubService
) -> None:
    killed = [sys.executable, "-c", KILLED_AT_FIRST_FRAME, str(tmp_path)]
    assert subprocess.run(killed, check=False).returncode == -9
    (left,) = tmp_path.glob("*/*")
    uplink = started(tmp_path, service.url, attempt=NEXT)
    until(partial(is_gone, left))
    uplink.close("finished")

    assert steps_of(service, ATTEMPT.token)[0] == 0


def test_what_another_rank_did_not_say_of_its_end_is_not_said_for_it(
    tmp_path: Path, service: StubService
) -> None:
    killed = [sys.executable, "-c", KILLED, str(tmp_path), "1"]
    assert subprocess.run(killed, check=False).returncode == -9
    (left,) = tmp_path.glob("*/*-1")
    uplink = started(tmp_path, service.url, rank=1, attempt=NEXT)
    until(partial(is_gone, left))

    assert steps_of(service, ATTEMPT.token) == list(range(50))
    assert service.closings == []
    uplink.close("finished")


def test_a_folder_has_one_holder_in_a_process(tmp_path: Path) -> None:
    uplink = started(tmp_path)
    uplink.close("finished")
    first, second = (SpoolFolder(uplink.spool_path) for _ in range(2))
    first.lock()
    with pytest.raises(BlockingIOError):
        second.lock()
    second.close()
    with pytest.raises(BlockingIOError):
        second.lock()
    first.close()

    second.lock()
    second.close()


def test_a_folder_that_cannot_be_read_is_no_matter_of_the_training(
    tmp_path: Path, service: StubService, caplog: pytest.LogCaptureFixture
) -> None:
    damaged, sound = started(tmp_path), started(tmp_path, attempt=NEXT)
    for before in (damaged, sound):
        before.close("finished")
    (damaged.spool_path / "meta.json").write_bytes(b"{")
    uplink = started(tmp_path, service.url, attempt=LATER)
    train(uplink, 5)
    until(partial(is_gone, sound.spool_path))
    uplink.close("finished")

    assert steps_of(service, LATER.token) == list(range(5))
    assert not is_gone(damaged.spool_path)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
