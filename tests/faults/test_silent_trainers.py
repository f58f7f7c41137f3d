"""A trainer that speaks and makes no step, and one that says nothing any more: each is told for
what it is, and so is its end. In real time: a run is missed after a minute."""

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.real_service import RealService
from tests.faults.checker import violations
from tests.faults.history import Fired, History, Notified
from tests.faults.recording import RecordingSender, note_stored
from tests.faults.sender import Sender
from tests.server.notify.sink import Sink, running_sink
from tests.waiting import until

pytestmark = pytest.mark.heavy

_FRAMES = 20
_BEAT_S = 2.0


@pytest.fixture
def sink() -> Iterator[Sink]:
    with running_sink() as running:
        yield running


@pytest.fixture
def service(tmp_path: Path, sink: Sink) -> Iterator[RealService]:
    service = RealService(tmp_path / "service")
    (tmp_path / "service" / "data").mkdir()
    team = f"{{name: team, url: 'json://127.0.0.1:{sink.port}/hook'}}"
    receivers = f"receivers: [{team}]\nallow_networks: [127.0.0.0/8]"
    (tmp_path / "service" / "data" / "receivers.yaml").write_text(receivers)
    with service:
        yield service


def open_run(service: RealService, key: str, history: History) -> Sender:
    """It has shown its pace: a step a second, by its own clock."""
    sender = RecordingSender.after(Sender.open(service.url, key), history)
    for seq in range(1, _FRAMES + 1):
        sender.send(seq, [1.0], first_step=seq - 1)
    return sender


@contextmanager
def beating(sender: Sender) -> Generator[None]:
    """The process is there, and says since when it has made no step."""
    began, over = time.monotonic(), threading.Event()

    def beat() -> None:
        while not over.wait(_BEAT_S):
            age_s = time.monotonic() - began
            told = {"attempt": 1, "rank": 0, "last_step": _FRAMES - 1, "phase": "train"}
            path = f"/runs/{sender.run_id}/heartbeat"
            sender.json("POST", path, {**told, "step_age_s": age_s})

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(120)


def alerts_of(service: RealService, sender: Sender) -> list[Any]:
    found: list[Any] = service.ask("GET", f"/alerts?run_id={sender.run_id}")["alerts"]
    return found


def is_told(sink: Sink, sender: Sender, rule: str, *, over: bool) -> bool:
    kind = "success" if over else "failure"
    return any(
        body["type"] == kind and rule in body["title"] and sender.run_id in body["message"]
        for body in sink.bodies
    )


def test_who_hangs_and_who_is_dead_are_told_apart_and_so_are_their_ends(
    service: RealService, sink: Sink, tmp_path: Path
) -> None:
    history = History(tmp_path / "history.jsonl")
    key = service.create_key("ingest")
    hangs, is_dead = (open_run(service, key, history) for _ in range(2))
    wanted = ((hangs, "StepOverdue"), (is_dead, "RunLost"))
    with beating(hangs):
        for sender, rule in wanted:
            until(partial(is_told, sink, sender, rule, over=False))
    for sender, rule in wanted:
        sender.send(_FRAMES + 1, [1.0], first_step=_FRAMES)
        until(partial(is_told, sink, sender, rule, over=True))

    for sender, rule in wanted:
        told = [one for one in alerts_of(service, sender) if one["inhibited_by"] is None]
        assert [one["rule"] for one in told if one["firing_step"] is not None] == [rule]
        for over in (False, True):
            key_of_it = f"{rule} of {sender.run_id}"
            history.note(Fired(key_of_it, over=over))
            if is_told(sink, sender, rule, over=over):
                history.note(Notified(key_of_it, over=over))
    history.note_log(service.log, key)
    note_stored(history, service, [hangs.run_id, is_dead.run_id])
    assert violations(history) == []
