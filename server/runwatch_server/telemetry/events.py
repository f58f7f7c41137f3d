"""What happened to a run, in the order in which the service heard of it."""

from dataclasses import dataclass

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.frames import Event
from runwatch.ulids import ulid
from runwatch.vocabulary import RunId
from runwatch_server.clock import Clock
from runwatch_server.telemetry.tables import events

_FIRST_RANDOMNESS = 1 << 72


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """An event as it is kept."""

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
    """Writes events, under ids that never run backwards: a reader resumes by the last it saw."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0

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
    ) -> None:
        """Adds events to a run, inside the caller's write."""
        rows = [
            {
                "run_id": run_id,
                "id": self._next_id(),
                "attempt": attempt,
                "rank": rank,
                "segment": segment,
                "step": event.step,
                "source": source,
                "kind": event.kind[:64],
                "at": event.at,
                "detail": msgspec.json.encode(event.detail).decode(),
            }
            for event in recorded
        ]
        if rows:
            await connection.execute(events.insert(), rows)

    def _next_id(self) -> str:
        number = (int(self._clock.wall() * 1000) << 80) | _FIRST_RANDOMNESS
        self._last = max(number, self._last + 1)
        return ulid(self._last >> 80, (self._last & ((1 << 80) - 1)).to_bytes(10, "big"))


async def list_events(
    connection: AsyncConnection,
    run_id: RunId,
    *,
    kinds: tuple[str, ...] = (),
    after: str | None = None,
    limit: int = 1000,
) -> list[RecordedEvent]:
    """Oldest first; `after` is the id of the last event already seen."""
    query = sa.select(events).where(events.c.run_id == run_id).order_by(events.c.id).limit(limit)
    if kinds:
        query = query.where(events.c.kind.in_(kinds))
    if after is not None:
        query = query.where(events.c.id > after)
    return [_event(row) for row in await connection.execute(query)]


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
