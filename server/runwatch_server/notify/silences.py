"""Silences: for a span of time, matching alerts send no messages.

They apply to our own receivers; Alertmanager has silences of its own. Patterns are globs, not
regular expressions, since a hostile expression can take for ever to match.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch_server.errors import UnprocessableError
from runwatch_server.notify.recurrence import Recurrence
from runwatch_server.notify.tables import silences

MAX_SILENCES: Final = 300
"""Most silences of one project that are not over, and most of those for every project: each message
is checked against all of them."""


class Matcher(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A condition on the value of a label."""

    name: str
    """Name of the label."""
    value: str
    """A glob; `*` stands for any characters."""
    negated: bool = False
    """True: the value must not match."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        return fnmatchcase(labels.get(self.name, ""), self.value) is not self.negated


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    id: str
    project: str
    """Empty: of every project."""
    matchers: tuple[Matcher, ...]
    starts_at: float
    ends_at: float
    author: str
    comment: str
    created_at: float
    recurs: Recurrence | None = None
    """None: it lasts from its start to its end without a break."""

    def is_in_force(self, now: float) -> bool:
        return self.starts_at <= now < self.ends_at and (
            self.recurs is None or self.recurs.covers(now)
        )

    def next_at(self, now: float) -> float | None:
        """When its next window begins; None if it does not recur or ends before."""
        if self.recurs is None:
            return None
        found = self.recurs.next_after(max(now, self.starts_at))
        return found if found is not None and found < self.ends_at else None

    def covers(self, labels: Mapping[str, str], *, now: float) -> bool:
        """Whether messages about an alert with these labels are held back now."""
        return self.matches(labels) and self.is_in_force(now)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether it matches an alert with these labels, at whatever time."""
        return self.project in ("", labels.get("project", "")) and all(
            matcher.matches(labels) for matcher in self.matchers
        )


class Muting:
    """The silences at one moment. Whether one is in force is computed only if it matches an alert,
    and only once: with a window's time zone this is the most expensive check."""

    def __init__(self, all_silences: Iterable[Silence], *, now: float) -> None:
        self._silences = [one for one in all_silences if one.starts_at <= now < one.ends_at]
        self._now = now
        self._in_force: dict[str, bool] = {}

    def covers(self, labels: Mapping[str, str]) -> bool:
        """Whether an alert with these labels is held back."""
        return any(
            silence.matches(labels) and self._is_in_force(silence) for silence in self._silences
        )

    def _is_in_force(self, silence: Silence) -> bool:
        known = self._in_force.get(silence.id)
        if known is None:
            known = self._in_force[silence.id] = silence.is_in_force(self._now)
        return known


async def insert_silence(connection: AsyncConnection, silence: Silence) -> None:
    """Raises UnprocessableError if its project has as many silences as it may have."""
    held = await _count(connection, silence.project, ending_after=silence.created_at)
    if held >= MAX_SILENCES:
        whose = f"of project {silence.project!r}" if silence.project else "of every project"
        raise UnprocessableError(
            "too_many_silences",
            f"found {held} silences {whose} that are not over and one more, "
            f"wanted at most {MAX_SILENCES}; end those that are no longer needed",
        )
    await connection.execute(
        sa.insert(silences).values(
            id=silence.id,
            project=silence.project,
            matchers=msgspec.json.encode(silence.matchers).decode(),
            starts_at=silence.starts_at if silence.recurs is None else silence.ends_at,
            ends_at=silence.ends_at,
            recurs=_recurs_text(silence),
            author=silence.author,
            comment=silence.comment,
            created_at=silence.created_at,
        )
    )


async def end_silence(connection: AsyncConnection, silence: Silence, *, at: float) -> None:
    """Ends a silence now; it stays on record."""
    await connection.execute(
        sa.update(silences)
        .where(silences.c.id == silence.id)
        .values(ends_at=at, starts_at=min(silence.starts_at, at))
    )


async def find_silence(connection: AsyncConnection, silence_id: str) -> Silence | None:
    found = await connection.execute(sa.select(silences).where(silences.c.id == silence_id))
    row = found.mappings().first()
    return None if row is None else _silence(row)


async def list_silences(
    connection: AsyncConnection,
    *,
    ending_after: float,
    projects: Collection[str] | None,
    before_id: str | None = None,
    limit: int | None = None,
) -> list[Silence]:
    """Silences that are not over at a time, newest first: those of these projects and those for
    every project, or all. There is no limit, since one that is left out would not be in force."""
    wanted = sa.select(silences).where(silences.c.ends_at > ending_after)
    if projects is not None:
        wanted = wanted.where(silences.c.project.in_(("", *projects)))
    if before_id is not None:
        wanted = wanted.where(silences.c.id < before_id)
    found = await connection.execute(wanted.order_by(silences.c.id.desc()).limit(limit))
    return [_silence(row) for row in found.mappings()]


async def _count(connection: AsyncConnection, project: str, *, ending_after: float) -> int:
    found = await connection.execute(
        sa.select(sa.func.count()).where(
            silences.c.project == project, silences.c.ends_at > ending_after
        )
    )
    return found.scalar_one()


class _Recurs(msgspec.Struct, frozen=True):
    """The contents of the column."""

    starts_at: float
    window: Recurrence


def _recurs_text(silence: Silence) -> str | None:
    if silence.recurs is None:
        return None
    return msgspec.json.encode(_Recurs(silence.starts_at, silence.recurs)).decode()


def _silence(row: sa.RowMapping) -> Silence:
    columns: dict[str, Any] = {
        **row,
        "matchers": msgspec.json.decode(row["matchers"], type=tuple[Matcher, ...]),
    }
    if row["recurs"] is not None:
        kept = msgspec.json.decode(row["recurs"], type=_Recurs)
        starts_at = min(kept.starts_at, row["ends_at"])
        columns |= {"starts_at": starts_at, "recurs": kept.window}
    return Silence(**columns)
