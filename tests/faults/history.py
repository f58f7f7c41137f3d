"""What was seen from outside while something went wrong: one fact a line, for one checker."""

import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec


class Sent(msgspec.Struct, frozen=True, tag="sent"):
    """A frame left a client; once more each time that it is sent again."""

    stream: str
    seq: int
    crc32: int


class Acked(msgspec.Struct, frozen=True, tag="acked"):
    """The service said that it holds a frame."""

    stream: str
    seq: int


class Stored(msgspec.Struct, frozen=True, tag="stored"):
    """A row of the database, when all was over."""

    stream: str
    seq: int
    crc32: int


class Broken(msgspec.Struct, frozen=True, tag="broken"):
    """A stored frame was damaged, or taken away, on purpose."""

    stream: str
    seq: int


class Named(msgspec.Struct, frozen=True, tag="named"):
    """The service says of a frame that it is stored and cannot be read."""

    stream: str
    seq: int


class Alerts(msgspec.Struct, frozen=True, tag="alerts"):
    """A run's alerts: as they came to be, and as the same data give them undisturbed."""

    run: str
    live: str
    replayed: str


class Fired(msgspec.Struct, frozen=True, tag="fired"):
    """An alert that people are to hear of; `over`: and of its end."""

    key: str
    over: bool


class Notified(msgspec.Struct, frozen=True, tag="notified"):
    """A receiver took a message."""

    key: str
    over: bool


class Ordered(msgspec.Struct, frozen=True, tag="ordered"):
    """A command was made."""

    command_id: str


class Applied(msgspec.Struct, frozen=True, tag="applied"):
    """A rank carried a command out."""

    command_id: str
    rank: int


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A command's state when all was over."""

    command_id: str
    state: str


class Waited(msgspec.Struct, frozen=True, tag="waited"):
    """The longest that a training step was held up, and how long it may be on this machine."""

    seconds: float
    at_most: float


class Grew(msgspec.Struct, frozen=True, tag="grew"):
    """Memory or disk, and its bound."""

    what: str
    num_bytes: int
    at_most: int


class Logged(msgspec.Struct, frozen=True, tag="logged"):
    """A log, and how many of its lines held a secret."""

    place: str
    num_lines: int
    num_secrets: int


Fact = (
    Sent
    | Acked
    | Stored
    | Broken
    | Named
    | Alerts
    | Fired
    | Notified
    | Ordered
    | Applied
    | Ended
    | Waited
    | Grew
    | Logged
)


class History:
    """A file of facts; threads may note at the same time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def note(self, fact: Fact) -> None:
        with self._lock, self.path.open("ab") as file:
            file.write(msgspec.json.encode(fact) + b"\n")

    def note_log(self, log: Path, *secrets: str) -> None:
        lines = log.read_text(errors="replace").splitlines()
        leaks = sum(any(secret in line for secret in secrets) for line in lines)
        self.note(Logged(log.name, len(lines), leaks))

    def facts(self) -> Iterator[Fact]:
        """But for a line that another process is writing: a write is read in parts where it goes
        over the end of a page of the file."""
        for line in self.path.read_bytes().split(b"\n")[:-1]:
            yield msgspec.json.decode(line, type=Fact)


def checksum(body: bytes) -> int:
    return zlib.crc32(body)
