"""PostgreSQL stopped in order while trainers send, and started again: nobody sees an error of the
service, nothing acknowledged is lost, and nobody is taken for silent."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import urllib3
from tests.end_to_end.real_service import RealService
from tests.faults.checker import violations
from tests.faults.history import History
from tests.faults.recording import RecordingSender, note_frames
from tests.faults.sender import Sender
from tests.postgres import Postgres, PostgresCluster
from tests.waiting import until

pytestmark = pytest.mark.heavy

_ASKED_MEANWHILE: Final = 30


@pytest.fixture
def cluster(postgres: Postgres) -> PostgresCluster:
    if not isinstance(postgres, PostgresCluster):
        pytest.skip("needs a PostgreSQL of its own to stop")
    return postgres


@pytest.fixture
def database(cluster: PostgresCluster, migrated_database: str) -> Iterator[str]:
    name = cluster.create(like=migrated_database)
    yield name
    cluster.drop(name)


@pytest.fixture
def service(tmp_path: Path, cluster: PostgresCluster, database: str) -> Iterator[RealService]:
    with RealService(tmp_path / "service", database_url=cluster.url(database)) as running:
        yield running


def test_a_database_that_goes_and_comes_back_costs_no_acknowledged_frame(
    service: RealService, cluster: PostgresCluster, database: str, tmp_path: Path
) -> None:
    history = History(tmp_path / "history.jsonl")
    key = service.create_key("ingest")
    sender = RecordingSender.after(Sender.open(service.url, key), history)
    sent, goes_on = [0], threading.Event()
    goes_on.set()

    def send_on() -> None:
        while goes_on.is_set():
            sender.send_until_acknowledged(sent[0] + 1, [1.0, 1.0], first_step=2 * sent[0])
            sent[0] += 1

    with ThreadPoolExecutor(1) as threads:
        sending = threads.submit(send_on)
        try:
            until(lambda: sending.done() or sent[0] >= 20)
            cluster.stop()
            try:
                answers = [_answer(service, sender.run_id) for _ in range(_ASKED_MEANWHILE)]
            finally:
                cluster.start()
            back_at = sent[0]
            until(lambda: sending.done() or sent[0] >= back_at + 20)
        finally:
            goes_on.clear()
        sending.result(120)

    assert {status for status, _ in answers} == {503}
    assert all(int(retry_after) >= 1 for _, retry_after in answers)
    assert service.ask("GET", f"/alerts?run_id={sender.run_id}")["alerts"] == []
    query = partial(cluster.execute, database=database)
    note_frames(history, query, [sender.run_id])
    history.note_log(service.log, key)
    assert violations(history) == []


def _answer(service: RealService, run_id: str) -> tuple[int, str]:
    """To a reader: what it is told while there is no database."""
    reply = urllib3.request(
        "GET",
        f"{service.url}/api/v1/runs/{run_id}",
        headers={"Authorization": f"Bearer {service.admin_key}"},
        retries=False,
        timeout=60.0,
    )
    return reply.status, reply.headers.get("Retry-After", "0")
