"""The messages between the service and its judging processes, pickled.

Both ends have the same version and run on the same machine, joined by a pipe that nobody else has.
"""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

from runwatch.rules import Rows, Transition

_PROTOCOL: Final = 5
"""From this version on pickle copies arrays once; multiprocessing's default would copy them
twice."""


@dataclass(frozen=True, slots=True)
class Open:
    """Make a judge under a number that the service has chosen. The answer is how much memory it
    takes, in bytes."""

    number: int
    rank: int
    rule_set: str
    """The hash of the rule set."""
    documents: list[object] | None
    """The documents of the rule set; None if they were sent before."""
    state: bytes
    known: Mapping[str, float] | None


@dataclass(frozen=True, slots=True)
class Observe:
    """The answer is Observed."""

    number: int
    rows: Rows


@dataclass(frozen=True, slots=True)
class Observed:
    """What the rows brought, and how much memory the judge takes since."""

    transitions: list[Transition]
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GetState:
    """The answer is the state as bytes."""

    number: int


@dataclass(frozen=True, slots=True)
class GetKnown:
    """The answer is what the next attempt has to know."""

    number: int


@dataclass(frozen=True, slots=True)
class Release:
    """Only lets judges go, those that are released with it. The answer is None."""


Question = Open | Observe | GetState | GetKnown | Release


@dataclass(frozen=True, slots=True)
class Request:
    """A question, and the numbers of judges that are no longer needed."""

    question: Question
    released: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer if the question failed: a traceback."""

    text: str


def send(connection: Connection, message: object) -> None:
    """Raises OSError if the other end is gone."""
    connection.send_bytes(pickle.dumps(message, protocol=_PROTOCOL))


def receive(connection: Connection) -> Any:
    """Raises EOFError or OSError if the other end is gone."""
    return pickle.loads(connection.recv_bytes())
