"""The process that judges for a service: killed or stopped, it changes nothing in the alerts; and
it ends with its service, not before and not after."""

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.end_to_end.real_service import NOBODY_IS_MISSED, RealService
from tests.faults.checker import violations
from tests.faults.history import Alerts, History
from tests.faults.noisy_run import NUM_FRAMES, STEPS_A_FRAME, judged, losses_of, open_run, send_all
from tests.faults.recording import RecordingSender, note_stored
from tests.faults.sender import Sender
from tests.judging_processes import is_over, judging_processes
from tests.waiting import until

from runwatch_server.demo.service_process import ServiceProcess

pytestmark = pytest.mark.heavy

DISTURBED_BEFORE = {60: signal.SIGKILL, 180: signal.SIGSTOP}
"""Frames of the run."""
APART = {"RUNWATCH_JUDGE_PROCESSES": "1"}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RealService]:
    environment = APART | NOBODY_IS_MISSED
    with RealService(tmp_path / "service", environment=environment) as running:
        yield running


def send_to_judging_of(service: RealService, what: signal.Signals) -> int:
    """Which process it was."""
    (pid,) = until(lambda: [one for one in judging_processes(service.pid) if not is_over(one)])
    os.kill(pid, what)
    return pid


def test_kills_and_stops_of_the_process_that_judges_change_nothing_in_the_alerts(
    service: RealService, tmp_path: Path
) -> None:
    history = History(tmp_path / "history.jsonl")
    key = service.create_key("ingest")
    undisturbed = open_run(service, key, "auto")
    send_all(undisturbed)
    expected = judged(service, undisturbed)
    assert len(expected[0]) >= 5
    assert expected[1]

    disturbed = RecordingSender.after(open_run(service, key, "auto"), history)
    disturbed_ones: list[int] = []
    for seq in range(1, NUM_FRAMES + 1):
        if seq in DISTURBED_BEFORE:
            disturbed_ones.append(send_to_judging_of(service, DISTURBED_BEFORE[seq]))
        disturbed.send_until_acknowledged(seq, losses_of(seq), (seq - 1) * STEPS_A_FRAME)

    live = judged(service, disturbed)
    assert [is_over(pid) for pid in disturbed_ones] == [True, True]
    history.note(Alerts(disturbed.run_id, live=repr(live), replayed=repr(expected)))
    history.note_log(service.log, key)
    note_stored(history, service, [disturbed.run_id])
    assert violations(history) == []


@pytest.fixture
def in_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceProcess]:
    """A service that leads its process group, and has judged a frame."""
    for name, value in APART.items():
        monkeypatch.setenv(name, value)
    made = ServiceProcess(tmp_path)
    made.start()
    try:
        sender = Sender.open(made.url, made.admin_key)
        sender.send(1, [2.0], first_step=0)
        until(lambda: marks(tmp_path))
        yield made
    finally:
        made.stop()


def marks(folder: Path) -> list[tuple[int, int]]:
    """Up to which frame each stream was judged, and up to which its evaluator's state holds."""
    with closing(sqlite3.connect(f"file:{folder}/service/runwatch.db?mode=ro", uri=True)) as found:
        return found.execute("SELECT evaluated_seq, state_seq FROM evaluations").fetchall()


def test_a_group_that_is_told_to_end_still_saves_what_was_judged(
    in_a_group: ServiceProcess, tmp_path: Path
) -> None:
    """Ctrl-C and systemd tell all of its processes: the judging must not be the first to go."""
    (judging,) = judging_processes(in_a_group.pid)
    os.killpg(in_a_group.pid, signal.SIGTERM)
    in_a_group.stop()

    assert is_over(judging)
    assert marks(tmp_path) == [(1, 1)]


def test_a_service_is_stopped_in_time_though_the_process_that_judges_stands_still(
    in_a_group: ServiceProcess,
) -> None:
    (judging,) = judging_processes(in_a_group.pid)
    os.kill(judging, signal.SIGSTOP)
    began = time.monotonic()
    in_a_group.stop()

    assert time.monotonic() - began < 20.0
    assert is_over(judging)


def test_no_process_that_judges_outlives_a_service_that_is_killed(
    in_a_group: ServiceProcess,
) -> None:
    (judging,) = judging_processes(in_a_group.pid)
    os.kill(in_a_group.pid, signal.SIGKILL)

    until(lambda: is_over(judging))
