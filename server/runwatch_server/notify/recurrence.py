"""Recurring windows, such as each night or each Saturday, in a time zone with summer time.

When clocks go forward, a window that would begin in the missing hour begins an hour later. When
they go back, a window that begins in the repeated hour begins twice. A window's length is in real
time.
"""

import logging
import math
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Annotated, Final
from zoneinfo import ZoneInfo

import msgspec

from runwatch_server.errors import UnprocessableError
from runwatch_server.notify.wall_cron import MOST_DAYS, WallCron, wall_cron

log = logging.getLogger(__name__)

_DAY_S: Final = 86400.0
_LOOK_AHEAD_S: Final = MOST_DAYS * _DAY_S
_SET_S: Final = 7200.0
"""The largest clock change: that of Antarctica/Troll, by two hours."""


class Recurrence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cron: Annotated[str, msgspec.Meta(max_length=200)]
    """When each window begins: minute, hour, day, month, weekday, all of which must match. Weekdays
    are names (`sat`, `mon-fri`), since numbers count from Sunday for some and Monday for others."""
    for_s: Annotated[float, msgspec.Meta(ge=60, le=7 * _DAY_S)]
    """How long each window lasts, in seconds."""
    timezone: Annotated[str, msgspec.Meta(max_length=64)] = "UTC"
    """An IANA name such as `Europe/Berlin`."""

    def covers(self, now: float) -> bool:
        """Whether a window is open. If the machine does not know the time zone, none ever is: one
        message too many is better than none at all."""
        began = self.next_after(now - self.for_s)
        return began is not None and began <= now

    def next_after(self, now: float) -> float | None:
        """When the next window begins; None if not within a year, or if unknown."""
        try:
            return self._next_after(now)
        except ValueError as error:
            _warn_once(str(error))
            return None

    def _next_after(self, now: float) -> float | None:
        cron, zone = wall_cron(self.cron), _zone(self.timezone)
        wall = cron.next_after(_wall(now, zone))
        found = None if wall is None else _moments(wall, zone)[0]
        if found is None or _is_set_around(now, zone) or _is_set_around(found, zone):
            found = _first_of_moments(cron, zone, now)
        return found if found is not None and found <= now + _LOOK_AHEAD_S else None

    def check(self, now: float) -> None:
        """Raises UnprocessableError."""
        try:
            found = self._next_after(now)
        except ValueError as error:
            raise UnprocessableError("invalid_recurrence", f"recurs: {error}") from error
        if found is None:
            raise UnprocessableError(
                "invalid_recurrence",
                f"recurs.cron: found {self.cron!r}, which does not come within a year",
            )


@lru_cache(maxsize=64)
def _warn_once(why: str) -> None:
    """Log a warning once, because this is checked for each alert."""
    log.warning("a maintenance window does not open: %s", why)


def _zone(name: str) -> tzinfo:
    """Raises ValueError."""
    if name == "UTC":  # the default, known even without a time zone database
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:  # a folder, a path, or an unknown name
        raise ValueError(
            f"timezone: found {name!r}, wanted a name such as Europe/Berlin"
        ) from error


def _wall(at: float, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(at, zone).replace(tzinfo=None)


def _moments(wall: datetime, zone: tzinfo) -> tuple[float, ...]:
    """The moments at which a wall clock shows a time: two in the hour that is repeated. In the hour
    that is missing, the moment at which the clock before the change would show it."""
    first = wall.replace(tzinfo=zone).timestamp()
    second = wall.replace(tzinfo=zone, fold=1).timestamp()
    return (first, second) if second > first else (first,)


def _is_set_around(at: float, zone: tzinfo) -> bool:
    """Whether the clock is changed so close to a time that the first time shown may not be the
    first moment."""
    before = datetime.fromtimestamp(at - _SET_S, zone).utcoffset()
    return before != datetime.fromtimestamp(at + _SET_S, zone).utcoffset()


def _first_of_moments(cron: WallCron, zone: tzinfo, now: float) -> float | None:
    """The first matching moment after a time. Starts at a wall time as much earlier as clocks ever
    change."""
    found, until = math.inf, datetime.max
    wall = cron.next_after(_wall(now, zone) - timedelta(seconds=_SET_S))
    while wall is not None and wall <= until:
        to_come = [moment for moment in _moments(wall, zone) if moment > now]
        if to_come and to_come[0] < found:
            found, until = to_come[0], wall + timedelta(seconds=_SET_S)
        wall = cron.next_after(wall)
    return None if found == math.inf else found
