"""The service's wall clock and monotonic clock, as one value that is passed in."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from runwatch.ulids import ulid


@dataclass(frozen=True, slots=True)
class Clock:
    """Tests pass functions of their own."""

    wall: Callable[[], float] = time.time
    """Unix seconds, for times that are stored or shown; never for deadlines in the process."""
    monotonic: Callable[[], float] = time.monotonic
    """Seconds of a clock that never goes back, for deadlines and ages."""

    def new_ulid(self) -> str:
        return ulid(int(self.wall() * 1000), secrets.token_bytes(10))


_LAST: Final = datetime.max.replace(microsecond=0, tzinfo=UTC).timestamp()
"""In the year 9999, after which RFC 3339 has no dates."""


def rfc3339(at: float) -> datetime:
    """Unix seconds as an aware datetime, which JSON shows in the form of RFC 3339.

    A trainer's clock may give a time beyond the calendar. It is moved to the nearest valid one, so
    that one such event does not make all the others of its run unreadable.
    """
    return datetime.fromtimestamp(min(max(at, 0.0), _LAST), UTC)


def rfc3339_if_any(at: float | None) -> datetime | None:
    """The same for a time that may be None."""
    return None if at is None else rfc3339(at)
