"""Spools brought in afterwards: whole, twice, broken off, damaged, refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.hooks.uplink.factories import ATTEMPT, KILLED, RUN, event, row, settings, started, train
from tests.hooks.uplink.stub_service import TOKEN, Fault, StubService
from tests.waiting import until

from runwatch.commands import CommandState, Receipt
from runwatch.nonfinite import is_absent
from runwatch.vocabulary import CommandId, Phase
from runwatch_hooks.sync import main
from runwatch_hooks.uplink import Uplink
from runwatch_hooks.uplink.spool import SpoolFolder


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNWATCH_TOKEN", TOKEN)
    monkeypatch.delenv("RUNWATCH_URL", raising=False)


def spooled(spool_dir: Path, num_steps: int = 30) -> Path:
    """The spool of a run that found no service, in frames of ten steps."""
    uplink = Uplink(settings(spool_dir, spool_bytes=2**16), RUN, ATTEMPT, rank=0)
    for first_step in range(0, num_steps, 10):
        train(uplink, 10, first_step)
        uplink.put_event(event(first_step))
        uplink.put_row(row(first_step + 9, layout=None, stats=None, metrics={"val_loss": 1.0}))
    uplink.set_progress(num_steps - 1, Phase.TRAIN, 1.0)
    uplink.put_receipt(Receipt(CommandId("c"), 1, 0, CommandState.APPLIED, step=9))
    uplink.start()  # only now: a sender that is at work makes frames of what has come so far
    uplink.close("finished")
    return uplink.spool_path


def sync(folder: Path, service: StubService, patience: str = "5") -> int:
    return main([str(folder), "--url", service.url, "--patience", patience])


def training_steps(service: StubService) -> list[int]:
    """Of the rows with layers; what was logged beside them shares their frames."""
    ordered = [service.frames[key] for key in sorted(service.frames)]
    return [
        frame.first_step + i
        for frame in ordered
        if frame.layout_hash
        for i in np.flatnonzero(~is_absent(frame.stats).any(axis=1)).tolist()
    ]


def test_a_spool_is_brought_in_whole_and_removed(tmp_path: Path, service: StubService) -> None:
    spooled(tmp_path)

    assert sync(tmp_path, service) == 0
    assert training_steps(service) == list(range(30))
    assert service.num_late == len(service.frames)
    assert list(tmp_path.iterdir()) == []


def test_each_spool_is_a_line_for_programs(
    tmp_path: Path, service: StubService, capsys: pytest.CaptureFixture[str]
) -> None:
    spool = spooled(tmp_path)

    assert main([str(tmp_path), "--url", service.url, "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {
        "spool": str(spool),
        "result": "done",
        "said": "33 steps in 4 frames stored",
    }


def test_the_attempt_is_opened_as_one_that_is_over_and_closed(
    tmp_path: Path, service: StubService
) -> None:
    spooled(tmp_path)
    sync(tmp_path, service)

    assert [opened.live for opened in service.attempts.values()] == [False]
    assert [(end.status, end.last_step) for end in service.closings] == [("finished", 29)]
    assert [receipt.step for receipt in service.receipts] == [9]


def test_a_lost_reply_is_asked_for_again(tmp_path: Path, service: StubService) -> None:
    spooled(tmp_path)
    service.frame_faults.extend([Fault.DROP_REPLY] * 3 + [Fault.BUSY, Fault.NONSENSE])

    assert sync(tmp_path, service) == 0
    assert training_steps(service) == list(range(30))


def test_a_sync_that_was_broken_off_goes_on_where_it_was(
    tmp_path: Path, service: StubService
) -> None:
    spooled(tmp_path)
    service.frame_faults.extend([Fault.DROP_REPLY] * 4)
    assert sync(tmp_path, service, patience="0") == 1
    stored = list(service.frames)

    assert sync(tmp_path, service) == 0
    assert list(service.frames)[: len(stored)] == stored
    assert training_steps(service) == list(range(30))


def test_a_trainer_that_was_killed_leaves_a_spool_that_comes_in(
    tmp_path: Path, service: StubService
) -> None:
    killed = [sys.executable, "-c", KILLED, str(tmp_path), "0"]
    assert subprocess.run(killed, check=False).returncode == -9

    assert sync(tmp_path, service) == 0
    assert service.steps == list(range(50))
    assert [end.status for end in service.closings] == ["failed"]


def damage(spool: Path) -> Path:
    """The first file of a spool, with a byte turned in its first record."""
    path = min(spool.glob("*.seg"))
    octets = bytearray(path.read_bytes())
    octets[100] ^= 0xFF
    path.write_bytes(octets)
    return path


def test_a_damaged_record_is_counted_and_the_rest_comes_in(
    tmp_path: Path, service: StubService, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(spooled(tmp_path))

    assert sync(tmp_path, service) == 3
    assert training_steps(service) == list(range(10, 30))
    assert "bytes damaged" in capsys.readouterr().err


def losses_said(service: StubService) -> dict[int, int]:
    """How many frames each is said to have lost before it, where any are, by its number."""
    return {seq: one.lost for (_, _, seq), one in service.frames.items() if one.lost}


def test_the_service_is_told_which_frames_will_never_come(
    tmp_path: Path, service: StubService
) -> None:
    damage(spooled(tmp_path))
    service.frame_faults.extend([None, Fault.BAD_FRAME])
    sync(tmp_path, service)
    first, *_ = service.frames

    assert losses_said(service) == {first[2]: 1, first[2] + 2: 1}


def test_a_sync_that_goes_on_knows_of_no_loss(tmp_path: Path, service: StubService) -> None:
    spooled(tmp_path)
    service.frame_faults.extend([None, Fault.BUSY])
    assert sync(tmp_path, service, patience="0") == 1

    assert sync(tmp_path, service) == 0
    assert losses_said(service) == {}


def test_a_service_that_knows_less_than_it_acknowledged_is_told_that_nothing_else_comes(
    tmp_path: Path, service: StubService
) -> None:
    spooled(tmp_path)
    service.frame_faults.extend([None, Fault.TOO_FAR])

    assert sync(tmp_path, service) == 0
    assert losses_said(service) == {2: 1}


def test_a_damaged_file_is_kept_and_told_and_its_folder_stays(
    tmp_path: Path, service: StubService, capsys: pytest.CaptureFixture[str]
) -> None:
    spool = spooled(tmp_path)
    path = damage(spool)
    octets = path.read_bytes()

    assert sync(tmp_path, service) == 3
    assert "1 damaged file kept (*.seg.bad)" in capsys.readouterr().err
    assert sync(tmp_path, service) == 3
    assert [kept.name for kept in spool.glob("*.seg*")] == [f"{path.name}.bad"]
    assert (spool / f"{path.name}.bad").read_bytes() == octets
    assert "0 frames stored, 1 damaged file kept" in capsys.readouterr().err


def test_a_refused_frame_is_kept_and_told(
    tmp_path: Path, service: StubService, capsys: pytest.CaptureFixture[str]
) -> None:
    spool = spooled(tmp_path)
    service.frame_faults.append(Fault.BAD_FRAME)

    assert sync(tmp_path, service) == 3
    assert [path.name for path in spool.glob("*.bad")] == ["frame-1.bad"]
    assert "1 frame refused" in capsys.readouterr().err
    assert sync(tmp_path, service) == 3


def test_a_refused_key_leaves_the_spool(tmp_path: Path, service: StubService) -> None:
    spool = spooled(tmp_path)
    service.fault = Fault.FORBIDDEN

    assert sync(tmp_path, service) == 1
    assert list(spool.glob("*.seg"))


def test_a_living_trainers_spool_is_left_alone(
    tmp_path: Path, service: StubService, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = SpoolFolder(spooled(tmp_path))
    folder.lock()
    environment = os.environ | {"RUNWATCH_URL": service.url}
    program = [sys.executable, "-m", "runwatch_hooks.sync", str(tmp_path)]
    ended = subprocess.run(program, env=environment, check=False, capture_output=True, text=True)
    folder.close()

    assert ended.returncode == 1
    assert "its trainer is still running" in ended.stderr


def test_wrong_use_is_told(
    tmp_path: Path, service: StubService, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 2
    assert sync(tmp_path / "nowhere", service) == 2

    told = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in told] == ["url", "no such folder"]


def test_a_folder_that_was_brought_in_before_is_none_to_complain_of(
    tmp_path: Path, service: StubService, capsys: pytest.CaptureFixture[str]
) -> None:
    spooled(tmp_path)
    assert [sync(tmp_path, service), sync(tmp_path, service)] == [0, 0]
    assert capsys.readouterr().err.splitlines()[-1].startswith("nothing is left to bring in")


def test_what_is_left_by_a_live_run_comes_in_under_the_same_attempt(
    tmp_path: Path, service: StubService
) -> None:
    uplink = started(tmp_path, service.url)
    train(uplink, 10)
    until(lambda: len(service.steps) == 10)
    service.fault = Fault.HANG_UP
    train(uplink, 10, first_step=10)
    uplink.close("finished", timeout_s=0.3)
    service.fault = None

    until(lambda: sync(tmp_path, service) == 0)  # once the sender has let go of the spool
    assert service.steps == list(range(20))
    assert {attempt for attempt, _, _ in service.frames} == {1}


def test_pieces_of_a_frame_keep_their_numbers_over_a_sync(
    tmp_path: Path, service: StubService
) -> None:
    spooled(tmp_path)
    service.max_frame_steps = 4
    service.frame_faults.extend([None, None, Fault.DROP_REPLY, Fault.DROP_REPLY])
    assert sync(tmp_path, service, patience="0") == 1
    assert service.steps == [0, 1]

    assert sync(tmp_path, service) == 0
    assert training_steps(service) == list(range(30))
    assert [seq for _, _, seq in sorted(service.frames)] == list(range(1, len(service.frames) + 1))
