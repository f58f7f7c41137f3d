"""What the service and a process that judges for it say to each other, pickled.

Both ends are of one version and one machine, joined by a pipe that nobody else has.
"""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

from runwatch.rules import Rows

_PROTOCOL: Final = 5
"""From here on pickle copies arrays once; multiprocessing's own default would do it twice."""


@dataclass(frozen=True, slots=True)
class Open:
    """Make a judge, under a number that the service has chosen. Answered with None."""

    number: int
    rank: int
    rule_set: str
    """Its hash."""
    documents: list[object] | None
    """The rule set's; None where they were sent before."""
    state: bytes
    known: Mapping[str, float] | None


@dataclass(frozen=True, slots=True)
class Observe:
    """Answered with the transitions."""

    number: int
    rows: Rows


@dataclass(frozen=True, slots=True)
class AskState:
    """Answered with bytes."""

    number: int


@dataclass(frozen=True, slots=True)
class AskKnown:
    """Answered with what the next attempt is to know."""

    number: int


Question = Open | Observe | AskState | AskKnown


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and the numbers of judges that nobody will ask for again."""

    question: Question
    let_go: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer where there is none: a traceback."""

    text: str


def send(connection: Connection, message: object) -> None:
    """Raises OSError where nobody hears it."""
    connection.send_bytes(pickle.dumps(message, protocol=_PROTOCOL))


def receive(connection: Connection) -> Any:
    """Raises EOFError, OSError where the other end is gone."""
    return pickle.loads(connection.recv_bytes())
