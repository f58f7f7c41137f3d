"""The two clocks of the service, as one value that is passed in."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from runwatch.ulids import ulid


@dataclass(frozen=True, slots=True)
class Clock:
    """Tests give functions of their own."""

    wall: Callable[[], float] = time.time
    """Unix seconds: for what is stored and shown, never for a deadline inside the process."""
    monotonic: Callable[[], float] = time.monotonic
    """Seconds that are never set back: for deadlines and ages."""

    def new_ulid(self) -> str:
        return ulid(int(self.wall() * 1000), secrets.token_bytes(10))


_LAST: Final = datetime.max.replace(microsecond=0, tzinfo=UTC).timestamp()
"""Of the year 9999, after which RFC 3339 has no dates."""


def rfc3339(at: float) -> datetime:
    """Unix seconds as the aware time that JSON shows in RFC 3339.

    A time that no calendar has, as a trainer's clock may give one, is the nearest that it has: one
    such event must not hide all others of its run.
    """
    return datetime.fromtimestamp(min(max(at, 0.0), _LAST), UTC)


def rfc3339_if_any(at: float | None) -> datetime | None:
    """The same of what may not have happened."""
    return None if at is None else rfc3339(at)
