"""The stream of events over a real socket: told at once, and none left out after a break."""

import math
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import urllib3
from tests.end_to_end.real_service import RealService
from tests.faults.sender import Sender
from tests.waiting import LONGEST_S

pytestmark = pytest.mark.heavy


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RealService]:
    with RealService(tmp_path / "service") as running:
        yield running


def lines_of(sender: Sender, last_event_id: str) -> Generator[str, None, None]:
    """The stream's lines, until the caller has seen enough."""
    headers = {"Authorization": f"Bearer {sender.key}", "Last-Event-ID": last_event_id}
    url = f"{sender.url}/api/v1/stream?run_id={sender.run_id}"
    http = urllib3.PoolManager(retries=False, timeout=LONGEST_S)
    reply = http.request("GET", url, headers=headers, preload_content=False)
    assert reply.status == 200, reply.read()
    try:
        buffered = b""
        for chunk in reply.stream(1):
            buffered += chunk
            while b"\n" in buffered:
                line, buffered = buffered.split(b"\n", 1)
                yield line.decode()
    finally:
        reply.close()
        http.clear()


def test_a_reader_that_was_cut_off_misses_nothing(service: RealService) -> None:
    sender = Sender.open(service.url, service.create_key("ingest", "read"))
    live = lines_of(sender, "0-0")
    assert next(live).startswith(":")
    sender.send(1, [2.0, math.nan], first_step=0)
    first_id = next(line for line in live if line.startswith("id: ")).removeprefix("id: ")
    live.close()

    sender.send(2, [2.0] * 30, first_step=2)
    resumed = lines_of(sender, first_id)
    told = next(line for line in resumed if '"kind":"resolved"' in line)
    assert '"alert_id"' in told
