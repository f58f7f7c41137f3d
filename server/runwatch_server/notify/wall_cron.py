"""Finds the next minute of a cron expression on a wall clock, without time zones or clock changes.

APScheduler parses the expression. Its own computation of the next time is wrong after a clock
change: it leaves out what begins before one o'clock on the day after the clocks went forward.
"""

from bisect import bisect_right
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, Final

from apscheduler.triggers.cron import CronTrigger  # type: ignore[import-untyped]

MOST_DAYS: Final = 366
"""Days. An expression that does not match within a year is a mistake, such as the 30th of
February."""
_FIELDS: Final[tuple[str, ...]] = ("minute", "hour", "day", "month", "day_of_week")
_MONDAY: Final = datetime(2001, 1, 1)
"""A Monday that is the first day of its month and of its year."""


@dataclass(frozen=True, slots=True)
class WallCron:
    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Monday."""
    day: Any
    """APScheduler's field, because `last` and `1st mon` are different days in each month."""

    def next_after(self, wall: datetime) -> datetime | None:
        """The first minute after a time without a time zone; None if not within a year."""
        if self._takes(wall.date()):
            found = self._time_after(wall)
            if found is not None:
                return datetime.combine(wall.date(), found)
        day = _day_from(self.text, wall.date() + timedelta(days=1))
        return None if day is None else datetime.combine(day, time(self.hours[0], self.minutes[0]))

    def _time_after(self, wall: datetime) -> time | None:
        """The first time later on that day."""
        place = bisect_right(self.minutes, wall.minute)
        if wall.hour in self.hours and place < len(self.minutes):
            return time(wall.hour, self.minutes[place])
        place = bisect_right(self.hours, wall.hour)
        return time(self.hours[place], self.minutes[0]) if place < len(self.hours) else None

    def _takes(self, day: date) -> bool:
        return (
            day.month in self.months
            and day.weekday() in self.weekdays
            and _takes(self.day, datetime.combine(day, time()))
        )

    def day_from(self, first: date) -> date | None:
        """The first matching day from one on; None if not within a year."""
        days = (first + timedelta(days=count) for count in range(MOST_DAYS + 1))
        return next((day for day in days if self._takes(day)), None)


@lru_cache(maxsize=1024)
def wall_cron(text: str) -> WallCron:
    """Raises ValueError."""
    texts = _texts(text)
    try:
        trigger: Any = CronTrigger(timezone="UTC", **texts)
    except ValueError as error:  # says what is wrong, but not where
        raise ValueError(f"cron: found {text!r}: {error}") from error
    fields: dict[str, Any] = {field.name: field for field in trigger.fields}
    minutes, hours = fields["minute"], fields["hour"]
    months, weekdays = fields["month"], fields["day_of_week"]
    return WallCron(
        text,
        minutes=tuple(one for one in range(60) if _takes(minutes, _MONDAY.replace(minute=one))),
        hours=tuple(one for one in range(24) if _takes(hours, _MONDAY.replace(hour=one))),
        months=frozenset(one for one in range(1, 13) if _takes(months, _MONDAY.replace(month=one))),
        weekdays=frozenset(
            one for one in range(7) if _takes(weekdays, _MONDAY.replace(day=1 + one))
        ),
        day=fields["day"],
    )


@lru_cache(maxsize=4096)
def _day_from(text: str, first: date) -> date | None:
    """Cached, because it is asked again all day."""
    return wall_cron(text).day_from(first)


def _takes(field: Any, wall: datetime) -> bool:
    return bool(field.get_next_value(wall) == field.get_value(wall))


def _texts(cron: str) -> dict[str, str]:
    """The text of each field. Raises ValueError."""
    parts = cron.lower().split()
    if len(parts) != len(_FIELDS):
        raise ValueError(f"cron: found {cron!r}, wanted five fields such as '30 2 * * sat'")
    fields: dict[str, str] = dict(zip(_FIELDS, parts, strict=True))
    if any(character.isdigit() for character in fields["day_of_week"]):
        raise ValueError(f"cron: found weekday {fields['day_of_week']!r}, wanted names: mon-fri")
    return fields
