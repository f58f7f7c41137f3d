"""Rows in, frames out, commands back: with the service well, ill, away and back."""

import gc
import itertools
import math
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np
import pytest
from tests.hooks.uplink.factories import ATTEMPT, LAYOUT, RUN, event, row, settings, started, train
from tests.hooks.uplink.stub_service import Fault, StubService
from tests.waiting import LONGEST_S, until

from runwatch.codec import split_frame
from runwatch.commands import Command, CommandState, LowerLr, Receipt
from runwatch.frames import Event
from runwatch.nonfinite import ABSENT_32
from runwatch.vocabulary import CommandId, Phase
from runwatch_hooks.uplink import Uplink
from runwatch_hooks.uplink.segments import scan_record
from runwatch_hooks.uplink.sender import Pace
from runwatch_hooks.uplink.spool import SpoolFolder
from runwatch_hooks.uplink.threads import LOWEST_NICENESS


def command(number: int = 1, *, attempt: int = 1, expires_in_s: float = 3600.0) -> Command:
    return Command(
        id=CommandId(f"command-{number}"),
        action=LowerLr(0.5),
        attempt=attempt,
        expires_at=time.time() + expires_in_s,
    )


def test_every_step_arrives_once_and_in_order(tmp_path: Path, service: StubService) -> None:
    uplink = started(tmp_path, service.url)
    train(uplink, 300)
    uplink.close("finished")

    assert service.steps == list(range(300))


def test_no_connection_is_left_open_once_a_run_has_ended(
    tmp_path: Path, service: StubService
) -> None:
    uplink = started(tmp_path, service.url)  # held, as a notebook holds it
    train(uplink, 3)
    port = urlsplit(service.url).port
    until(lambda: num_open_to(port) > 0)
    uplink.close("finished")

    until(lambda: num_open_to(port) == 0)  # a poll on its way ends by itself
    assert service.steps == [0, 1, 2]


def num_open_to(port: int | None) -> int:
    """Open sockets of this process whose other end is a port."""
    found = [one for one in gc.get_objects() if type(one) is socket.socket]
    return sum(peer_port(one) == port for one in found)


def peer_port(one: socket.socket) -> int | None:
    try:
        return int(one.getpeername()[1])
    except OSError:  # closed, or not connected
        return None


def test_values_arrive_as_they_were_put(tmp_path: Path, service: StubService) -> None:
    stats = np.array([np.nan, ABSENT_32], np.float32)
    uplink = started(tmp_path, service.url)
    uplink.put_row(row(7, metrics={"loss": float("inf")}, stats=stats))
    uplink.close("finished")

    frame = service.frames[1, 0, 1]
    assert (frame.first_step, frame.metric_names, frame.metrics.tolist()) == (
        7,
        ("loss",),
        [[np.inf]],
    )
    assert frame.stats.tobytes() == stats.tobytes()


def test_the_run_the_attempt_and_the_layout_are_made_known_first(
    tmp_path: Path, service: StubService
) -> None:
    uplink = started(tmp_path, service.url)
    train(uplink, 1)
    uplink.close("finished")

    assert service.runs == {RUN.run_id: RUN}
    assert service.attempts == {ATTEMPT.token: ATTEMPT}
    assert service.layouts == {LAYOUT.hash: LAYOUT}


@pytest.mark.parametrize(("resume_step", "rank", "times"), [(0, 0, 1), (0, 1, 0), (5, 0, 0)])
def test_steps_that_count_from_0_again_are_told_of(
    tmp_path: Path,
    service: StubService,
    caplog: pytest.LogCaptureFixture,
    resume_step: int,
    rank: int,
    times: int,
) -> None:
    next_life = msgspec.structs.replace(
        ATTEMPT, token=ATTEMPT.token[:-1] + "Z", resume_step=resume_step
    )
    for attempt in (ATTEMPT, next_life):
        uplink = started(tmp_path, service.url, attempt=attempt, rank=rank)
        train(uplink, 1)
        uplink.close("finished")

    assert caplog.text.count("the steps count from 0 again") == times


def test_a_spool_that_arrived_whole_is_removed(tmp_path: Path, service: StubService) -> None:
    uplink = started(tmp_path, service.url)
    train(uplink, 10)
    uplink.close("finished")

    assert list(tmp_path.iterdir()) == []
    assert [closing.status for closing in service.closings] == ["finished"]


def test_a_lost_reply_stores_nothing_twice(tmp_path: Path, service: StubService) -> None:
    service.frame_faults.extend([Fault.DROP_REPLY] * 5)
    uplink = started(tmp_path, service.url)
    train(uplink, 50)
    uplink.close("finished")

    assert service.num_duplicates == 5
    assert service.steps == list(range(50))


@pytest.mark.parametrize(
    "fault",
    [Fault.HANG_UP, Fault.BUSY, Fault.LIMITED, Fault.NONSENSE, Fault.FORGET_LAYOUTS],
)
def test_a_service_that_stumbles_loses_nothing(
    tmp_path: Path, service: StubService, fault: Fault
) -> None:
    service.frame_faults.extend([fault] * 2)
    uplink = started(tmp_path, service.url)
    train(uplink, 20)
    until(lambda: len(service.steps) == 20)
    uplink.close("finished")

    assert service.steps == list(range(20))


def test_a_redirect_is_told_with_where_it_points_and_not_followed(
    tmp_path: Path, service: StubService, caplog: pytest.LogCaptureFixture
) -> None:
    service.fault = Fault.MOVED
    uplink = started(tmp_path, service.url)
    train(uplink, 20)
    until(lambda: f"302 to {service.url}/elsewhere" in caplog.text)
    service.fault = None
    uplink.close("finished")

    assert service.steps == list(range(20))


def test_a_service_that_comes_late_gets_all(tmp_path: Path, service: StubService) -> None:
    service.fault = Fault.HANG_UP
    uplink = started(tmp_path, service.url)
    train(uplink, 20)
    until(lambda: any(tmp_path.rglob("*.seg")))
    service.fault = None
    until(lambda: len(service.steps) == 20)
    uplink.close("finished")

    assert service.steps == list(range(20))


def test_what_follows_an_urgent_row_is_not_held_back(
    tmp_path: Path, service: StubService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def long_calm(*, close_s: float, calm_s: float, now: float) -> Pace:
        return Pace(close_s=close_s, calm_s=calm_s, now=now - 1000.0)

    monkeypatch.setattr("runwatch_hooks.uplink.uplink.Pace", long_calm)
    uplink = started(tmp_path, service.url, calm_interval_s=600.0)
    uplink.put_row(row(0, urgent=True))
    until(lambda: service.steps == [0])
    uplink.put_row(row(1))
    until(lambda: service.steps == [0, 1])
    # The bell of the urgent row may be heard as late as here; after it there is no other.
    uplink.put_row(row(2))
    until(lambda: service.steps == [0, 1, 2])
    uplink.close("finished")


def test_a_refused_frame_is_kept_aside_and_the_next_ones_arrive(
    tmp_path: Path, service: StubService
) -> None:
    service.frame_faults.append(Fault.BAD_FRAME)
    uplink = started(tmp_path, service.url)
    uplink.put_row(row(0, urgent=True))
    until(lambda: uplink.num_dropped_rows == 1)
    uplink.put_row(row(1, urgent=True))
    uplink.close("finished")

    assert service.steps == [1]
    assert [event.kind for event in service.frames[1, 0, 2].events] == ["gap"]
    assert [path.name for path in uplink.spool_path.glob("*.bad")] == ["frame-1.bad"]


def test_a_frame_that_is_too_large_travels_in_pieces(tmp_path: Path, service: StubService) -> None:
    service.max_frame_steps = 3
    uplink = Uplink(settings(tmp_path, service.url), RUN, ATTEMPT, rank=0)
    train(uplink, 10)
    uplink.put_event(event(9))
    uplink.start()
    until(lambda: len(service.steps) == 10)
    train(uplink, 1, first_step=10)
    uplink.close("finished")

    assert service.steps == list(range(11))
    assert [key[2] for key in sorted(service.frames)] == list(range(1, len(service.frames) + 1))


def test_rows_whose_layers_the_service_does_not_take_arrive_without_them(
    tmp_path: Path, service: StubService
) -> None:
    service.max_layouts = 0
    uplink = started(tmp_path, service.url)
    train(uplink, 5)
    until(lambda: service.steps == list(range(5)))
    train(uplink, 5, first_step=5)
    uplink.close("finished")

    assert service.steps == list(range(10))
    frames = list(service.frames.values())
    assert {frame.layout_hash for frame in frames} == {""}
    (told,) = [event for frame in frames for event in frame.events]
    assert (told.kind, told.step) == ("unwatched", 0)
    assert "too_many_layouts" in str(told.detail["what"])
    assert uplink.num_dropped_rows == 0


def test_a_stale_attempt_falls_silent_and_keeps_its_spool(
    tmp_path: Path, service: StubService
) -> None:
    service.frame_faults.append(Fault.STALE)
    uplink = started(tmp_path, service.url)
    uplink.put_row(row(0, urgent=True))
    until(lambda: not service.frame_faults)
    train(uplink, 5, first_step=1)
    uplink.close("finished")

    assert service.steps == []
    assert service.closings == []
    assert list(uplink.spool_path.glob("*.seg"))


def test_an_attempt_that_is_stale_before_its_first_frame_is_no_fault_of_ours(
    tmp_path: Path, service: StubService, caplog: pytest.LogCaptureFixture
) -> None:
    service.fault = Fault.STALE
    uplink = started(tmp_path, service.url)
    until(lambda: "this attempt is over" in caplog.text)
    uplink.close("finished")

    assert "the sender failed" not in caplog.text


def test_a_refused_key_is_never_told_to_the_log(
    tmp_path: Path, service: StubService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    service.fault = Fault.FORBIDDEN
    uplink = started(tmp_path, service.url, token="rw_very-secret")
    train(uplink, 1)
    until(lambda: "the API key is refused" in caplog.text)
    uplink.close("finished", timeout_s=1.0)

    assert "very-secret" not in caplog.text + repr(settings(tmp_path, token="rw_very-secret"))


def test_a_heartbeat_tells_what_the_trainer_does(tmp_path: Path, service: StubService) -> None:
    uplink = started(tmp_path, service.url)
    uplink.set_progress(41, Phase.CHECKPOINT, 0.5)
    until(lambda: any(beat.phase is Phase.CHECKPOINT for beat in service.beats))
    uplink.close("finished")

    beat = next(beat for beat in service.beats if beat.phase is Phase.CHECKPOINT)
    assert (beat.last_step, beat.lr_scale, beat.dropped_rows) == (41, 0.5, 0)


def test_a_command_is_handed_on_once_however_often_it_comes(
    tmp_path: Path, service: StubService
) -> None:
    uplink = started(tmp_path, service.url)
    until(lambda: service.beats)
    sent = command()
    service.send(sent)
    taken: list[Command] = []

    def take() -> int:
        taken.extend(uplink.take_commands())
        return len(taken)

    until(take)
    num_beats = len(service.beats)
    until(lambda: take() and len(service.beats) > num_beats + 2)
    uplink.close("finished")

    assert taken == [sent]


def test_an_expired_command_is_answered_by_the_clock_of_the_service(
    tmp_path: Path, service: StubService
) -> None:
    service.clock_offset_s = 1000.0
    uplink = started(tmp_path, service.url)
    uplink.set_progress(4, Phase.TRAIN, 1.0)
    until(lambda: uplink.service_time() > time.time() + 900)
    service.send(command(expires_in_s=500.0))
    until(lambda: service.receipts)
    uplink.close("finished")

    assert uplink.take_commands() == []
    assert [(receipt.state, receipt.step) for receipt in service.receipts] == [
        (CommandState.EXPIRED, 5)
    ]


def test_a_command_for_another_attempt_is_rejected(tmp_path: Path, service: StubService) -> None:
    uplink = started(tmp_path, service.url)
    service.send(command(attempt=7))
    until(lambda: service.receipts)
    uplink.close("finished")

    assert [receipt.state for receipt in service.receipts] == [CommandState.REJECTED]


def test_a_receipt_is_sent_until_the_service_has_it(tmp_path: Path, service: StubService) -> None:
    receipt = Receipt(CommandId("command-1"), 1, 0, CommandState.APPLIED, step=9)
    service.receipt_faults.extend([Fault.BUSY, Fault.NONSENSE, Fault.HANG_UP, Fault.HANG_UP])
    uplink = started(tmp_path, service.url)
    uplink.put_receipt(receipt)
    until(lambda: receipt in service.receipts)
    uplink.close("finished")

    assert service.receipts == [receipt]


def test_memory_is_bounded_while_the_service_and_the_disk_are_away(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    uplink = started(tmp_path / "file", "http://127.0.0.1:9", queue_bytes=2**16)
    steps = itertools.count()

    def train_until_some_are_lost() -> bool:
        train(uplink, 100, first_step=100 * next(steps))
        return uplink.num_dropped_rows > 0

    until(train_until_some_are_lost)
    uplink.close("finished", timeout_s=2.0)


def test_rows_that_end_with_the_process_are_counted_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    uplink = started(tmp_path / "file", "http://127.0.0.1:9")
    train(uplink, 30)
    uplink.close("finished", timeout_s=LONGEST_S)

    assert uplink.num_dropped_rows == 30
    assert "30 rows are lost (30 in all)" in caplog.text


def test_a_machine_with_another_clock_is_told_beside_a_row(
    tmp_path: Path, service: StubService, caplog: pytest.LogCaptureFixture
) -> None:
    service.clock_offset_s = -1000.0
    uplink = started(tmp_path, service.url)
    until(lambda: "clock" in caplog.text)
    uplink.put_event(event())
    until(lambda: bool(service.frames))
    train(uplink, 3)
    uplink.close("finished")

    (frame,) = (one for one in service.frames.values() if "clock" in [e.kind for e in one.events])
    (told,) = (event for event in frame.events if event.kind == "clock")
    assert frame.num_steps > 0
    assert told.detail["ahead_s"] == pytest.approx(1000.0, abs=2.0)
    assert "1000 s ahead of the service's" in caplog.text


def test_losses_are_told_in_the_next_frame(tmp_path: Path, service: StubService) -> None:
    uplink = Uplink(settings(tmp_path, service.url, queue_bytes=2**16), RUN, ATTEMPT, 0)
    train(uplink, 1000)
    uplink.start()
    uplink.close("finished")

    gap = service.frames[1, 0, 1].events[0]
    lost = 1000 - len(service.steps)
    assert (gap.kind, gap.step, gap.detail["lost_rows"], gap.detail["last_step"]) == (
        "gap",
        0,
        lost,
        lost - 1,
    )


def test_without_a_url_everything_waits_in_the_spool(tmp_path: Path) -> None:
    uplink = started(tmp_path)
    train(uplink, 10)
    uplink.close("finished")

    assert {path.name for path in uplink.spool_path.iterdir()} == {
        "00000000000000000001.seg",
        "lock",
        "meta.json",
    }


def test_spool_files_are_private(tmp_path: Path) -> None:
    uplink = started(tmp_path)
    train(uplink, 10)
    uplink.close("finished")

    modes = {path.stat().st_mode & 0o777 for path in uplink.spool_path.iterdir()}
    assert (modes, uplink.spool_path.stat().st_mode & 0o777) == ({0o600}, 0o700)
    assert ATTEMPT.token not in str(uplink.spool_path)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="niceness of a thread: Linux")
def test_all_threads_yield_to_training(tmp_path: Path, service: StubService) -> None:
    others = set(threading.enumerate())
    mine = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    uplink = started(tmp_path, service.url)

    def ours() -> dict[str, int]:
        return {
            thread.name: os.getpriority(os.PRIO_PROCESS, thread.native_id or 0)
            for thread in set(threading.enumerate()) - others
            if thread.name.startswith("runwatch-")
        }

    names = ("runwatch-sender", "runwatch-stand-in", "runwatch-inbox")
    until(lambda: ours() == dict.fromkeys(names, LOWEST_NICENESS))
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == mine
    uplink.close("finished")


def test_a_child_by_fork_is_inert(tmp_path: Path, service: StubService) -> None:
    uplink = started(tmp_path, service.url)
    train(uplink, 1)
    child = os.fork()
    if child == 0:
        train(uplink, 5, first_step=100)
        uplink.close("failed")
        os._exit(len(uplink.take_commands()))
    _, status = os.waitpid(child, 0)
    uplink.close("finished")

    assert status == 0
    assert service.steps == [0]
    assert [closing.status for closing in service.closings] == ["finished"]


def test_close_is_bounded_while_the_service_hangs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, answers nothing
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        uplink = started(tmp_path, url, read_timeout_s=LONGEST_S)
        train(uplink, 10)
        began = time.monotonic()
        uplink.close("finished", timeout_s=0.5)

        assert time.monotonic() - began < LONGEST_S / 2  # it would wait for an answer


def test_what_is_left_is_said_once_though_the_sender_ends_after_the_close(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    others = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        uplink = started(tmp_path, url, read_timeout_s=1.0)
        train(uplink, 10)
        until(lambda: any(tmp_path.rglob("*.seg")))
        uplink.close("finished", timeout_s=0.1)
        until(lambda: set(threading.enumerate()) <= others)

    assert caplog.text.count("not everything was delivered") == 1


def test_a_spool_removed_under_a_run_costs_no_later_step(
    tmp_path: Path, service: StubService
) -> None:
    service.fault = Fault.HANG_UP
    uplink = started(tmp_path, service.url)
    train(uplink, 10)
    until(lambda: any(tmp_path.rglob("*.seg")))
    shutil.rmtree(uplink.spool_path)
    service.fault = None
    until(lambda: service.beats)
    train(uplink, 10, first_step=10)
    uplink.close("finished")

    assert service.steps[-10:] == list(range(10, 20))


def test_a_run_that_nobody_heard_of_says_where_it_lies(
    tmp_path: Path, service: StubService, caplog: pytest.LogCaptureFixture
) -> None:
    heard = started(tmp_path / "heard", service.url)
    train(heard, 3)
    heard.close("finished")
    assert "runwatch sync" not in caplog.text

    unheard = started(tmp_path / "unheard")
    train(unheard, 3)
    unheard.close("finished")

    assert f"runwatch sync {unheard.spool_path}" in caplog.text


def test_how_a_run_ended_is_written_down_even_if_the_service_hangs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uplink = started(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
        until(lambda: (uplink.spool_path / "meta.json").exists())
        uplink.close("stopped", timeout_s=0.1)
        closing = SpoolFolder(uplink.spool_path).read_meta().closing

    assert closing is not None
    assert closing.status == "stopped"


def test_steps_that_end_while_the_service_hangs_are_in_the_spool(tmp_path: Path) -> None:
    with silent_service() as (url, until_asked):
        uplink = started(tmp_path, url, read_timeout_s=LONGEST_S)
        until_asked()
        train(uplink, 10)
        uplink.close("finished", timeout_s=0.1)
        until(lambda: steps_in(uplink.spool_path) == list(range(10)))


def test_steps_are_in_the_spool_while_the_service_hangs(tmp_path: Path) -> None:
    """From there the next attempt sends them, if the program is killed meanwhile."""
    with silent_service() as (url, until_asked):
        uplink = started(tmp_path, url, read_timeout_s=LONGEST_S)
        until_asked()
        train(uplink, 10)
        until(lambda: steps_in(uplink.spool_path) == list(range(10)))
        uplink.close("finished", timeout_s=0.1)


@contextmanager
def silent_service() -> Generator[tuple[str, Callable[[], None]]]:
    """Its URL, and a wait until the sender has connected, and has to wait for an answer."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def until_asked() -> None:
            stack.enter_context(server.accept()[0])

        yield f"http://127.0.0.1:{server.getsockname()[1]}", until_asked


def steps_in(spool: Path) -> list[int]:
    """Without `Segments`, which would remove a file that it finds empty as it is begun."""
    steps: list[int] = []
    for path in sorted(spool.glob("*.seg")):
        octets, place = path.read_bytes(), 0
        while (scan := scan_record(octets, place)).record is not None:
            header, _ = split_frame(scan.record.payload)
            steps += range(header.first_step, header.first_step + header.num_steps)
            place = scan.end
    return steps


def test_a_configuration_of_any_kind_is_told_as_json_can(
    tmp_path: Path, service: StubService
) -> None:
    config: dict[str, object] = {
        "out": Path("ckpt"), "lr": np.float32(0.5), "betas": (0.9, 0.95), "max_norm": math.inf
    }  # fmt: skip
    run = msgspec.structs.replace(RUN, config=config)
    uplink = Uplink(settings(tmp_path, service.url), run, ATTEMPT, rank=0)
    uplink.start()
    uplink.close("finished")

    told = service.runs[RUN.run_id].config
    assert told == {"out": "ckpt", "lr": 0.5, "betas": [0.9, 0.95], "max_norm": "+Inf"}


class Wordless:
    def __str__(self) -> str:
        raise RuntimeError("not ready")


def test_a_configuration_whose_own_code_fails_costs_no_more_than_a_value(
    tmp_path: Path, service: StubService
) -> None:
    run = msgspec.structs.replace(RUN, config={"model": Wordless(), "lr": 0.5})
    uplink = Uplink(settings(tmp_path, service.url), run, ATTEMPT, rank=0)
    uplink.start()
    uplink.close("finished")

    assert service.runs[RUN.run_id].config == {"model": "Wordless", "lr": 0.5}


def test_a_configuration_that_no_service_would_take_is_left_out(
    tmp_path: Path, service: StubService
) -> None:
    run = msgspec.structs.replace(RUN, config={"text": "x" * 2**20})
    uplink = Uplink(settings(tmp_path, service.url), run, ATTEMPT, rank=0)
    uplink.start()
    uplink.close("finished")

    assert service.runs[RUN.run_id].config == {}


def test_an_event_that_no_encoding_carries_costs_no_row(
    tmp_path: Path, service: StubService
) -> None:
    uplink = started(tmp_path, service.url)
    train(uplink, 3)
    uplink.put_event(Event(2, "hook_fault", 1.7e9, {"error": "no file 'a\udcff'"}))
    train(uplink, 3, first_step=3)
    uplink.close("failed", reason="OSError: 'a\udcff'")

    assert service.steps == list(range(6))
    (frame,) = (frame for frame in service.frames.values() if frame.events)
    assert frame.events[0].detail == {"error": "no file 'a?'"}


def test_a_row_under_a_name_that_no_encoding_carries_is_a_loss_and_no_more(
    tmp_path: Path, service: StubService, caplog: pytest.LogCaptureFixture
) -> None:
    uplink = started(tmp_path, service.url)
    for step in (0, 2, 4):
        uplink.put_row(row(step))
        uplink.put_row(row(step + 1, metrics={"a\udcff": 1.0}))
    uplink.close("finished")

    assert service.steps == [0, 2, 4]
    assert uplink.num_dropped_rows == 3
    assert caplog.text.count("rows that cannot be encoded") == 1


def test_a_receipt_that_no_encoding_carries_keeps_nothing_back(
    tmp_path: Path, service: StubService
) -> None:
    state, path = CommandState.APPLIED, "mod\udce8les/step-1.pt"
    uplink = started(tmp_path, service.url)
    uplink.put_receipt(Receipt(CommandId("c1"), 1, 0, state, 9, {"path": path}))
    train(uplink, 3)
    uplink.close("finished")

    assert [receipt.detail for receipt in service.receipts] == [{"path": "mod?les/step-1.pt"}]
    assert service.steps == [0, 1, 2]


def test_a_receipt_that_nothing_encodes_is_told_and_keeps_nothing_back(
    tmp_path: Path, service: StubService, caplog: pytest.LogCaptureFixture
) -> None:
    detail: Any = {"path": object()}
    uplink = started(tmp_path, service.url)
    uplink.put_receipt(Receipt(CommandId("c1"), 1, 0, CommandState.APPLIED, 9, detail))
    train(uplink, 3)
    uplink.close("finished")

    assert (service.receipts, service.steps) == ([], [0, 1, 2])
    assert "receipt of command c1 cannot be sent" in caplog.text


def test_a_machine_whose_name_no_encoding_carries_is_known_all_the_same(
    tmp_path: Path, service: StubService
) -> None:
    attempt = msgspec.structs.replace(ATTEMPT, host={"hostname": "a\udcff"})
    started(tmp_path, service.url, attempt=attempt).close("finished")

    assert service.attempts[ATTEMPT.token].host == {"hostname": "a?"}
