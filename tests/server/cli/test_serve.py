"""`runwatch serve` as a process: what it says, what it refuses, how it stops."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import urllib3
from tests.faults.sender import Sender
from tests.forking import SERVICE, fork, run
from tests.proofs import proof
from tests.waiting import LONGEST_S, until

from runwatch_server.secret_files import admin_key_in

pytestmark = pytest.mark.slow

RUNWATCH = "runwatch_server.cli"


class Served:
    """A `runwatch serve` on a free port, with what it has said."""

    def __init__(self, data_dir: Path, log_path: Path, *options: str) -> None:
        self._data_dir = data_dir
        self._log_path = log_path
        log_path.write_bytes(b"")
        arguments = ["serve", "--port", "0", "--data-dir", str(data_dir), *options]
        self.process = fork(SERVICE, RUNWATCH, arguments, output=log_path, environment=os.environ)
        self.url = self.find(r"listens on (http://\S+)")

    @property
    def said(self) -> str:
        return self._log_path.read_text()

    @property
    def admin_key(self) -> str:
        key = admin_key_in(self._data_dir)
        assert key is not None, self.said
        return key

    def find(self, pattern: str) -> str:
        """What the pattern's group matches, once it has been said."""

        def match() -> re.Match[str] | None:
            assert self.process.poll() is None, self.said
            return re.search(pattern, self.said)

        found = until(match, said=lambda: self.said)
        assert found is not None
        return found[1]

    def is_closed(self) -> bool:
        """Whether it takes no more connections."""
        address = urlsplit(self.url)
        with socket.socket() as connecting:
            return connecting.connect_ex((address.hostname, address.port)) != 0

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LONGEST_S)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def start(*options: str) -> Served:
        served = Served(tmp_path / "data", tmp_path / f"{len(started)}.log", *options)
        started.append(served)
        return served

    yield start
    for served in started:
        if served.process.poll() is None:
            served.process.kill()
            served.process.wait()


@pytest.mark.parametrize("options", [(), ("--host", "0.0.0.0", "--behind-proxy")])
def test_without_a_terminal_the_first_key_is_in_a_file_and_in_no_log(
    serve: Callable[..., Served], options: tuple[str, ...], tmp_path: Path
) -> None:
    first = serve(*options)
    export = first.find(r"export (RUNWATCH_TOKEN=.+)")
    key = subprocess.check_output(["sh", "-c", f'{export}; printf %s "$RUNWATCH_TOKEN"'], text=True)
    file = tmp_path / "data" / "admin-key"
    assert f"the admin key is in {file}" in first.said
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert key.split("_")[2] not in first.said
    assert "WARNING" not in first.said  # nothing is wrong, so nothing is to be read first
    http = urllib3.PoolManager(retries=False)
    headers = {"Authorization": f"Bearer {key}"}

    answer = http.request("GET", f"{first.url}/api/v1/runs", headers=headers)

    assert answer.status == 200
    http.clear()
    assert first.stop() == 0
    second = serve()
    assert second.stop() == 0
    assert "admin key" not in second.said


def test_where_all_keys_are_lost_a_start_makes_another(serve: Callable[..., Served]) -> None:
    first = serve()
    old = first.admin_key
    assert first.stop() == 0
    second = serve("--new-admin-key")
    new = second.admin_key
    http = urllib3.PoolManager(retries=False)

    answer = http.request(
        "GET", f"{second.url}/api/v1/keys", headers={"Authorization": f"Bearer {new}"}
    )

    made_by = {key["name"]: key["created_by"] for key in answer.json()["keys"]}
    assert new != old
    assert made_by["new admin"] == "start with --new-admin-key"
    http.clear()
    assert second.stop() == 0


def test_a_second_service_on_the_same_data_says_whose_they_are(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    first = serve()

    arguments = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    second = run(SERVICE, RUNWATCH, arguments)

    assert second.returncode == 2
    said = " ".join((second.stdout + second.stderr).split())
    assert f"in use by process {first.process.pid}" in said


def test_an_open_address_without_tls_is_refused(tmp_path: Path) -> None:
    arguments = ["serve", "--host", "0.0.0.0", "--data-dir", str(tmp_path)]
    refused = run(SERVICE, RUNWATCH, arguments)

    assert refused.returncode == 2
    assert "wanted TLS" in " ".join(refused.stderr.split())


def test_a_stop_does_not_wait_for_long_polls(serve: Callable[..., Served]) -> None:
    """One that it waited for would be cut off unanswered, once the time to drain is over."""
    served = serve()
    key = served.admin_key
    sender = Sender.open(served.url, key)
    path = f"/api/v1/runs/{sender.run_id}/commands/next?attempt=1&wait_s=30"
    with closing(HTTPConnection(urlsplit(served.url).netloc, timeout=LONGEST_S)) as poll:
        headers = {"Authorization": f"Bearer {key}", **proof(sender.run_id)}
        poll.request("GET", path, headers=headers)
        Sender.open(served.url, key)  # connects after it: once it is answered, the poll is heard

        assert served.stop() == 0
        answer = poll.getresponse()
        assert (answer.status, json.load(answer)) == (200, {"commands": []})


def test_a_second_ctrl_c_stops_waiting_for_requests_and_still_stops_in_order(
    serve: Callable[..., Served],
) -> None:
    served = serve()
    key = served.admin_key
    Sender.open(served.url, key)
    with closing(HTTPConnection(urlsplit(served.url).netloc, timeout=LONGEST_S)) as unfinished:
        unfinished.putrequest("POST", "/api/v1/runs")
        unfinished.putheader("Authorization", f"Bearer {key}")
        unfinished.putheader("Content-Length", "100")
        unfinished.endheaders(b"{")
        Sender.open(served.url, key)  # connects after it: once it is answered, the other is heard
        served.process.send_signal(signal.SIGINT)
        until(served.is_closed)  # to new requests, while it waits for this one
        served.process.send_signal(signal.SIGINT)

        assert served.process.wait(60) == 0
    assert "stopping: committing what is queued" in served.said
