"""Two replicas whose machines' clocks are apart: each message is sent once."""

import math
import os
import time
from pathlib import Path
from typing import Final

import pytest
from tests.end_to_end.real_service import NOBODY_IS_MISSED, RealService
from tests.faults.sender import Sender
from tests.postgres import Postgres
from tests.server.notify.sink import running_sink
from tests.waiting import until

pytestmark = pytest.mark.heavy

_AHEAD: Final = "import time; real = time.time; time.time = lambda: real() + 90"
"""Run at the start of Python, before anything has taken the clock."""


def start_pair(folder: Path, url: str, *, receivers: str) -> tuple[RealService, RealService]:
    """The second one's clock is a minute and a half ahead."""
    (folder / "ahead").mkdir()
    (folder / "ahead" / "sitecustomize.py").write_text(_AHEAD)
    environment = {**NOBODY_IS_MISSED, "RUNWATCH_RECEIVERS": str(folder / "receivers.yaml")}
    (folder / "receivers.yaml").write_text(receivers)
    right = RealService(folder / "right", database_url=url, environment=environment)
    right.start()
    path = [str(folder / "ahead"), os.environ.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    ahead = RealService(
        folder / "fast", database_url=url, admin_key=right.admin_key, environment=environment
    )
    ahead.start()
    return right, ahead


def test_a_message_that_one_replica_is_sending_is_not_sent_by_the_other(
    postgres: Postgres, tmp_path: Path
) -> None:
    name = postgres.create()
    with running_sink() as sink:
        team = f"{{name: team, url: 'json://127.0.0.1:{sink.port}/hook'}}"
        pair = start_pair(
            tmp_path,
            postgres.url(name),
            receivers=f"receivers: [{team}]\nallow_networks: [127.0.0.0/8]",
        )
        try:
            right, ahead = pair

            def take_slowly(_: object) -> int:
                ahead.resume()
                time.sleep(8.0)  # in which the other replica looks eight times
                return 200

            sink.answer = take_slowly
            sender = Sender.open(right.url, right.create_key("ingest"))
            ahead.pause()
            sender.send(1, [2.0, math.nan], first_step=0)
            until(lambda: is_delivered(right))
            assert len(sink.posts) == 1
        finally:
            for service in pair:
                service.stop()
    postgres.drop(name)


def is_delivered(service: RealService) -> bool:
    found = service.ask("GET", "/notifications")["notifications"]
    return [one["state"] for one in found] == ["delivered"]
