"""Windows that come again: each night, each Saturday, in a time zone with its summer time.

APScheduler reckons when one begins. In the night in which the clocks go forward, what should begin
in the hour that is missing begins an hour later; in the one in which they go back, what begins in
the hour that comes twice comes twice. How long a window lasts is real time.
"""

import logging
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Annotated, Any, Final
from zoneinfo import ZoneInfo

import msgspec
from apscheduler.triggers.cron import CronTrigger  # type: ignore[import-untyped]

from runwatch_server.errors import UnprocessableError

log = logging.getLogger(__name__)

_FIELDS: Final[tuple[str, ...]] = ("minute", "hour", "day", "month", "day_of_week")
_LOOK_AHEAD_S: Final = 366 * 86400.0
"""What does not come within a year is a mistake, such as the 30th of February."""
_DAY_S: Final = 86400.0
_MISSING_S: Final = 3600.0
"""The most that a clock is set forward by."""
_INSTANT: Final = timedelta(microseconds=1)


class Recurrence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cron: Annotated[str, msgspec.Meta(max_length=200)]
    """When each begins: minute, hour, day, month, weekday; all of them must hold. Weekdays by
    name (`sat`, `mon-fri`): numbers mean Sunday to some and Monday to others."""
    for_s: Annotated[float, msgspec.Meta(ge=60, le=7 * _DAY_S)]
    """How long each lasts, in seconds."""
    timezone: Annotated[str, msgspec.Meta(max_length=64)] = "UTC"
    """As in `Europe/Berlin`."""

    def covers(self, now: float) -> bool:
        """Whether a window is open. On a machine that does not know its time zone none ever is:
        better a message too many than none at all."""
        began = self.next_after(now - self.for_s)
        return began is not None and began <= now

    def next_after(self, now: float) -> float | None:
        """When the next window begins; None: not within a year, or unknown."""
        try:
            return self._next_after(now)
        except ValueError as error:
            _say_once(str(error))
            return None

    def _next_after(self, now: float) -> float | None:
        # What begins in an hour that is missing is reckoned by the clock of before, and so from
        # before; seen from after, it would have been the day before.
        found = self._next(now - _MISSING_S)
        while found is not None and found <= now:
            found = self._next(found)
        return found

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

    def _next(self, after: float) -> float | None:
        zone = _zone(self.timezone)
        since = datetime.fromtimestamp(after, UTC) + _INSTANT
        trigger: Any = CronTrigger(
            timezone=zone,
            end_date=since + timedelta(seconds=_LOOK_AHEAD_S),
            **_fields(self.cron),
        )
        found: datetime | None = trigger.get_next_fire_time(None, since.astimezone(zone))
        return None if found is None else found.timestamp()


@lru_cache(maxsize=64)
def _say_once(why: str) -> None:
    """It is asked about with each alert."""
    log.warning("a maintenance window does not open: %s", why)


def _zone(name: str) -> tzinfo:
    """Raises ValueError."""
    if name == "UTC":  # the default; a machine without a database of time zones has it too
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:  # a folder's name, a path, a name of none
        raise ValueError(
            f"timezone: found {name!r}, wanted a name such as Europe/Berlin"
        ) from error


def _fields(cron: str) -> dict[str, str]:
    """Raises ValueError."""
    parts = cron.lower().split()
    if len(parts) != len(_FIELDS):
        raise ValueError(f"cron: found {cron!r}, wanted five fields such as '30 2 * * sat'")
    fields: dict[str, str] = dict(zip(_FIELDS, parts, strict=True))
    if any(character.isdigit() for character in fields["day_of_week"]):
        raise ValueError(f"cron: found weekday {fields['day_of_week']!r}, wanted names: mon-fri")
    return fields
