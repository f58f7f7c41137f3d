"""What happened to a run, in the order in which the service heard of it."""

from dataclasses import dataclass
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.frames import Event
from runwatch.nonfinite import to_json
from runwatch.ulids import following, ulid
from runwatch.vocabulary import RunId
from runwatch_server.clock import Clock
from runwatch_server.telemetry.tables import events
from runwatch_server.web.pagination import MOST_BYTES

_FIRST_RANDOMNESS: Final = bytes([1, *bytes(9)])
_AT_ONCE: Final = 64
"""Events read at a time: each may hold a megabyte."""
_NEWEST: Final = sa.select(sa.func.max(events.c.id)).where(events.c.run_id == bindparam("of_run"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """An event as it is stored."""

    id: str
    attempt: int
    rank: int
    segment: int
    step: int | None
    source: str
    """`trainer` or `service`."""
    kind: str
    at: float
    detail: dict[str, object]


class EventLog:
    """Writes events. Their ids never decrease within a run, whichever replica writes them and
    whatever its clock does, because readers resume after the last id they saw."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def record(
        self,
        connection: AsyncConnection,
        run_id: RunId,
        recorded: tuple[Event, ...],
        *,
        attempt: int,
        rank: int,
        segment: int,
        source: str = "service",
    ) -> int:
        """Add events to a run, inside the caller's write about that run. Returns the bytes of their
        details."""
        if not recorded:
            return 0
        ids = await self._next_ids(connection, run_id, len(recorded))
        rows = [
            {
                "run_id": run_id,
                "id": id_,
                "attempt": attempt,
                "rank": rank,
                "segment": segment,
                "step": event.step,
                "source": source,
                "kind": event.kind[:64],
                "at": event.at,
                "detail": _detail_text(event),
            }
            for id_, event in zip(ids, recorded, strict=True)
        ]
        await connection.execute(events.insert(), rows)
        return sum(len(str(row["detail"])) for row in rows)

    async def _next_ids(self, connection: AsyncConnection, run_id: RunId, num: int) -> list[str]:
        """Ids from the current time on, or after the run's newest event if that is later."""
        newest: str | None = await connection.scalar(_NEWEST, {"of_run": run_id})
        first = ulid(int(self._clock.wall() * 1000), _FIRST_RANDOMNESS)
        ids = [first if newest is None or newest < first else following(newest)]
        while len(ids) < num:
            ids.append(following(ids[-1]))
        return ids


async def list_events(
    connection: AsyncConnection,
    run_id: RunId,
    *,
    kinds: tuple[str, ...] = (),
    rank: int | None = None,
    after: str | None = None,
    limit: int = 1000,
) -> list[RecordedEvent]:
    """Oldest first; `after` is the id of the last event already seen. They are at most `limit`, and
    no more than have MOST_BYTES of details, but at least one if there is one."""
    query = sa.select(events).where(events.c.run_id == run_id).order_by(events.c.id)
    if kinds:
        query = query.where(events.c.kind.in_(kinds))
    if rank is not None:
        query = query.where(events.c.rank == rank)
    found: list[RecordedEvent] = []
    room = MOST_BYTES
    while room > 0 and len(found) < limit:
        chunk = query.where(events.c.id > (found[-1].id if found else after or ""))
        rows = (await connection.execute(chunk.limit(min(_AT_ONCE, limit - len(found))))).all()
        for row in rows:
            found.append(_event(row))
            room -= len(row.detail)
            if room <= 0:
                break
        if len(rows) < _AT_ONCE:
            break
    return found


def _detail_text(event: Event) -> str:
    """The detail as JSON. A frame brings NaN and infinities as they are; JSON has no such number,
    and the encoder would write null."""
    detail = {
        name: to_json(value) if isinstance(value, float) else value
        for name, value in event.detail.items()
    }
    return msgspec.json.encode(detail).decode()


def _event(row: sa.Row[tuple[object, ...]]) -> RecordedEvent:
    return RecordedEvent(
        id=row.id,
        attempt=row.attempt,
        rank=row.rank,
        segment=row.segment,
        step=row.step,
        source=row.source,
        kind=row.kind,
        at=row.at,
        detail=msgspec.json.decode(row.detail, type=dict[str, object]),
    )
