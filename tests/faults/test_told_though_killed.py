"""A service killed after a receiver took a message, and before it could note so: people hear
twice, under one dedup key, and never not at all."""

import math
import threading
from pathlib import Path

import pytest
from tests.end_to_end.real_service import NOBODY_IS_MISSED, RealService
from tests.faults.checker import violations
from tests.faults.history import Fired, History, Notified
from tests.faults.sender import Sender
from tests.server.notify.sink import running_sink
from tests.waiting import LONGEST_S, until

pytestmark = pytest.mark.heavy


def test_a_kill_between_sending_and_marking_makes_a_second_message_and_never_none(
    tmp_path: Path,
) -> None:
    service = RealService(tmp_path / "service", environment=NOBODY_IS_MISSED)
    (tmp_path / "service" / "data").mkdir()
    is_killed = threading.Event()
    with running_sink() as sink:

        def take_and_kill(_: object) -> int:
            service.kill()
            sink.answer = lambda _: 200
            is_killed.set()
            return 200

        sink.answer = take_and_kill
        team = f"{{name: team, url: 'json://127.0.0.1:{sink.port}/hook'}}"
        receivers = f"receivers: [{team}]\nallow_networks: [127.0.0.0/8]"
        (tmp_path / "service" / "data" / "receivers.yaml").write_text(receivers)
        service.start()
        try:
            sender = Sender.open(service.url, service.create_key("ingest"))
            sender.send(1, [2.0, math.nan], first_step=0)
            assert is_killed.wait(LONGEST_S)
            assert len(sink.posts) == 1
            service.start()
            until(lambda: len(sink.posts) == 2)
            until(lambda: delivered(service))
            history = History(tmp_path / "history.jsonl")
            (alert,) = service.ask("GET", f"/alerts?run_id={sender.run_id}")["alerts"]
            history.note(Fired(alert["rule"], over=False))
            history.note_log(service.log, sender.key)
        finally:
            service.stop()

        first, second = sink.bodies
        assert first["dedup_key"] == second["dedup_key"]
        assert first["title"] == second["title"]
        for body in sink.bodies:
            rule = alert["rule"] if alert["rule"] in body["title"] else body["title"]
            history.note(Notified(rule, over=body["type"] == "success"))
        assert violations(history) == []


def delivered(service: RealService) -> bool:
    (one,) = service.ask("GET", "/notifications")["notifications"]
    return bool(one["state"] == "delivered")
