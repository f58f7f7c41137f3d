"""A stop that takes too long ends the process; what was acknowledged is stored."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.faults.sender import Sender
from tests.postgres import Postgres, PostgresCluster
from tests.server.cli.test_serve import Served
from tests.waiting import LONGEST_S

from runwatch_server.cli.stop_limit import EXIT_CODE

pytestmark = pytest.mark.slow


@contextmanager
def frozen(postgres: Postgres, database: str) -> Generator[None]:
    """PostgreSQL answers nobody who is connected to a database, as behind a network that drops
    everything."""
    if not isinstance(postgres, PostgresCluster):
        pytest.skip("the server's processes may be another machine's")
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    query = f"SELECT pid FROM pg_stat_activity WHERE {others}"
    pids: list[int] = [row[0] for row in postgres.execute(query, database=database)]
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_a_stop_whose_database_does_not_answer_has_an_end(
    tmp_path: Path, postgres: Postgres, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = urlsplit(postgres_url).path[1:]
    monkeypatch.setenv("RUNWATCH_DRAIN_S", "0")
    monkeypatch.setenv("RUNWATCH_STOP_S", "2")
    served = Served(tmp_path / "data", tmp_path / "log", "--database-url", postgres_url)
    try:
        sender = Sender.open(served.url, served.admin_key)
        assert sender.send(1, [1.0, 2.0], first_step=0)["acked"] == 1
        with frozen(postgres, database):
            served.process.send_signal(signal.SIGTERM)

            assert served.process.wait(LONGEST_S) == EXIT_CODE
    finally:
        served.process.kill()
        served.process.wait()

    assert "still stopping after 2 s" in served.said
    assert "Current thread" in served.said  # and each thread's stack
    ((num_frames,),) = postgres.execute("SELECT count(*) FROM frames", database=database)
    assert num_frames == 1
