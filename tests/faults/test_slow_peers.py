"""Peers that send a byte at a time, or stop reading: each is let go after a
while, the others are served as ever, and none costs memory."""

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import pytest
from tests.end_to_end.real_service import RealService
from tests.faults.checker import violations
from tests.faults.history import Grew, History
from tests.faults.recording import RecordingSender, note_stored
from tests.faults.sender import Sender
from tests.waiting import LONGEST_S, until

pytestmark = pytest.mark.heavy

PATIENCE_S: Final = 2.0
_NUM_PEERS: Final = 40
_ROOM: Final = 64 * 2**20


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RealService]:
    environment = {"RUNWATCH_PATIENCE_S": str(PATIENCE_S)}
    with RealService(tmp_path / "service", environment=environment) as running:
        yield running


def slow_head(service: RealService) -> bytes:
    return b"GET /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


def slow_body(service: RealService) -> bytes:
    return (
        b"POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n"
        b"Authorization: Bearer " + service.admin_key.encode() + b"\r\n\r\n"
    )


def silent(service: RealService) -> bytes:
    return b""


@pytest.mark.parametrize("beginning", [slow_head, slow_body, silent])
def test_whoever_sends_a_byte_at_a_time_is_let_go_and_the_others_are_served(
    service: RealService, tmp_path: Path, beginning: Callable[[RealService], bytes]
) -> None:
    history = History(tmp_path / "history.jsonl")
    opened = Sender.open(service.url, service.create_key("ingest"))
    sender = RecordingSender.after(opened, history)
    before = service.resident_bytes
    with selectors.DefaultSelector() as peers:
        for _ in range(_NUM_PEERS):
            peer = socket.create_connection(("127.0.0.1", service.port))
            peer.sendall(beginning(service))
            peers.register(peer, selectors.EVENT_READ)
        seq = _trickle(peers, sender, says_more=beginning is not silent)
    for step in range(3):  # and afterwards
        sender.send_until_acknowledged(seq + step, [1.0], first_step=seq + step)

    history.note(Grew("memory", service.resident_bytes - before, _ROOM))
    history.note_log(service.log, sender.key)
    note_stored(history, service, [sender.run_id])
    assert violations(history) == []
    assert "Traceback" not in service.log.read_text()


def _trickle(peers: selectors.BaseSelector, sender: Sender, *, says_more: bool) -> int:
    """Each peer sends a byte in every round, as long as it is let; a trainer sends beside them.
    Returns the trainer's next number."""
    seq, deadline = 1, time.monotonic() + LONGEST_S
    while peers.get_map():
        assert time.monotonic() < deadline, f"{len(peers.get_map())} peers are still served"
        sender.send_until_acknowledged(seq, [1.0], first_step=seq)
        seq += 1
        gone = {key.fd for key, _ in peers.select(0.05)}  # nothing is ever answered to them
        for key in list(peers.get_map().values()):
            peer = key.fileobj
            assert isinstance(peer, socket.socket)
            try:
                if key.fd not in gone and says_more:
                    peer.sendall(b"x")
            except OSError:
                gone.add(key.fd)
            if key.fd in gone:
                peers.unregister(peer)
                peer.close()
    return seq


def test_whoever_stops_reading_is_let_go(service: RealService) -> None:
    with closing(socket.socket()) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", service.port))
        asked = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 200  # some 80 MB
        threading.Thread(target=_send, args=(peer, asked), daemon=True).start()
        until(
            lambda: "an answer to be read" in _on_one_line(service.log),
            said=lambda: service.log.read_text()[-2000:],
        )

    assert Sender.open(service.url, service.admin_key).json("GET", "/runs")["runs"]
    assert "Traceback" not in service.log.read_text()


def _on_one_line(log: Path) -> str:
    """The log wraps where the lengths of ports and folders let it."""
    return " ".join(log.read_text().split())


def _send(peer: socket.socket, text: bytes) -> None:
    with suppress(OSError):  # it is let go
        peer.sendall(text)
