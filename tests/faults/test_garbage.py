"""Broken frames, bombs, bodies too large: refused in words, and the service is none the worse."""

import random
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pytest
import urllib3
from tests.end_to_end.real_service import RealService
from tests.faults.checker import violations
from tests.faults.history import Grew, History, Sent, checksum
from tests.faults.recording import RecordingSender, note_stored, stream_name
from tests.faults.sender import Sender
from tests.proofs import proof

from runwatch import zstd
from runwatch.codec import CONTENT_TYPE, encode_frame
from runwatch.frames import Frame

pytestmark = pytest.mark.heavy

_NUM_BROKEN: Final = 400
_ROOM: Final = 96 * 2**20
"""Far below what any of the bombs would take, and above what an allocator keeps for itself."""
_LOG_BYTES: Final = 256 * 1024


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    with RealService(tmp_path_factory.mktemp("garbage")) as running:
        yield running


class Vandal:
    """Posts what is no frame, and writes down what it sent and what that cost the service."""

    def __init__(self, service: RealService, history: History) -> None:
        self.service = service
        self.key = service.create_key("ingest")
        opened = Sender.open(service.url, self.key)
        self.sender = RecordingSender.after(opened, history)
        self.history = history
        self._http = urllib3.PoolManager(retries=False, timeout=60.0)
        self.sender.send(1, [1.0, 2.0], first_step=0)
        self._bytes_before = service.resident_bytes
        self._log_before = service.log.stat().st_size

    def post(self, body: bytes, kind: str = CONTENT_TYPE) -> tuple[int, dict[str, Any]]:
        self.history.note(Sent(stream_name(self.sender.run_id, 1, 0), 2, checksum(body)))
        reply = self._http.request(
            "POST",
            f"{self.service.url}/api/v1/runs/{self.sender.run_id}/frames",
            body=body,
            headers={
                "Authorization": f"Bearer {self.key}",
                "Content-Type": kind,
                **proof(self.sender.run_id),
            },
        )
        return reply.status, msgspec.json.decode(reply.data)

    def look_back(self) -> list[str]:
        """The frame that was held before is held, another one is taken, and nothing grew."""
        self.sender.send(1, [1.0, 2.0], first_step=0)
        self.sender.send(3, [1.0, 2.0], first_step=4)
        grown = self.service.resident_bytes - self._bytes_before
        logged = self.service.log.stat().st_size - self._log_before
        self.history.note(Grew("memory", grown, _ROOM))
        self.history.note(Grew("log", logged, _LOG_BYTES))
        self.history.note_log(self.service.log, self.key)
        note_stored(self.history, self.service, [self.sender.run_id])
        return violations(self.history)


@pytest.fixture
def vandal(service: RealService, tmp_path: Path) -> Vandal:
    return Vandal(service, History(tmp_path / "history.jsonl"))


def whole_frame() -> bytes:
    return encode_frame(
        Frame(
            attempt=1,
            rank=0,
            seq=2,
            segment=0,
            first_step=2,
            times=np.arange(2.0),
            metric_names=("loss",),
            metrics=np.array([[1.0], [np.nan]]),
        )
    )


def with_header(**changes: object) -> bytes:
    """The frame with other facts in its header, over the same block."""
    body = whole_frame()
    magic, size = struct.unpack_from("<4sI", body)
    header = msgspec.msgpack.decode(body[8 : 8 + size])
    packed = msgspec.msgpack.encode(header | changes)
    return struct.pack("<4sI", magic, len(packed)) + packed + body[8 + size :]


def broken(chance: random.Random) -> bytes:
    """A frame with some of its bytes turned, cut off, doubled or made up."""
    body = bytearray(whole_frame())
    match chance.randrange(4):
        case 0:
            for _ in range(chance.randint(1, 8)):
                body[chance.randrange(len(body))] ^= chance.randint(1, 255)
        case 1:
            del body[chance.randrange(len(body)) :]
        case 2:
            start = chance.randrange(len(body))
            body[start:start] = chance.randbytes(chance.randint(1, 64))
        case _:
            body[8:] = chance.randbytes(chance.randint(0, 4096))
    return bytes(body)


def test_no_broken_frame_is_an_error_of_the_service(vandal: Vandal) -> None:
    chance = random.Random(17)
    for _ in range(_NUM_BROKEN):
        status, answer = vandal.post(broken(chance))
        assert status < 500, answer
        assert status == 200 or answer["code"], answer

    assert vandal.look_back() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"num_steps": -1},
        {"num_steps": 2**31},
        {"num_steps": 2**63},
        {"num_columns": 2**40},
        {"first_step": -1},
        {"first_step": 2**63},
        {"rank": 2**40},
        {"attempt": 2**40},
        {"attempt": -1},
        {"seq": 0},
        {"seq": 2**64 - 1},
        {"segment": 2**40},
        {"metric_names": ["loss"] * 100_000},
        {"metric_names": ["x" * 10_000]},
        {"layout_hash": "../../etc/passwd"},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_a_header_out_of_all_bounds_is_refused_in_words(
    vandal: Vandal, changes: dict[str, object]
) -> None:
    status, answer = vandal.post(with_header(**changes))

    assert 400 <= status < 500, answer
    assert answer["code"], answer
    assert vandal.look_back() == []


def whole_gigabyte() -> bytes:
    """Of zeros, packed, without ever having it: a zstd frame (RFC 8878) that declares its size, of
    blocks that repeat one byte 128 Ki times."""
    repeated = [(2**17 << 3 | 1 << 1 | is_last).to_bytes(3, "little") + b"\0" for is_last in (0, 1)]
    begin = zstd.MAGIC + b"\xc0\x38" + struct.pack("<Q", 2**30)
    return begin + repeated[0] * (2**13 - 1) + repeated[1]


def zstd_bomb() -> bytes:
    block = whole_gigabyte()
    body = with_header(crc32=zlib.crc32(block))
    return body[: 8 + struct.unpack_from("<I", body, 4)[0]] + block


BOMBS: Final[dict[str, tuple[Callable[[], bytes], str]]] = {
    "zstd": (zstd_bomb, CONTENT_TYPE),
    "declared": (lambda: with_header(num_steps=4096, num_columns=2**20), CONTENT_TYPE),
    "msgpack": (lambda: b"RWF1\x05\0\0\0\xdf\xff\xff\xff\xff", CONTENT_TYPE),
    "nested msgpack": (lambda: struct.pack("<4sI", b"RWF1", 10**5) + b"\x91" * 10**5, CONTENT_TYPE),
    "nested json": (lambda: b"[" * 10**5, "application/json"),
    "nested events": (lambda: b'{"events":' + b'{"detail":' * 10**5, "application/json"),
    "long number": (lambda: b'{"seq":' + b"9" * 10**6 + b"}", "application/json"),
    "long body": (lambda: bytes(9 * 2**20), CONTENT_TYPE),
}
"""Small bodies that want much, and one that is much; each with its kind."""


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_and_takes_no_memory(vandal: Vandal, name: str) -> None:
    make, kind = BOMBS[name]
    body = make()
    for _ in range(5):
        status, answer = vandal.post(body, kind)

        assert status in (400, 413, 422), answer
        assert answer["code"], answer
    assert vandal.look_back() == []
