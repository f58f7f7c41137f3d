"""Queries for the hosts on which a run's ranks train."""

from collections.abc import Mapping
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId
from runwatch_server.runs.queries import find_attempt
from runwatch_server.telemetry.tables import events

HOST: Final = "host"
"""The kind of the event by which each rank of several tells its host, once in each attempt."""


async def find_hosts(connection: AsyncConnection, run_id: RunId, attempt: int) -> dict[int, str]:
    """The host name of each rank of an attempt, in the order of ranks; ranks whose host is unknown
    are left out, as all are of a job whose hook is older than these events."""
    opened = await find_attempt(connection, run_id, attempt)
    if opened is None:
        return {}
    if opened.world_size == 1:  # of several ranks, any may have opened the attempt
        return _named({0: opened.host})
    found = await connection.execute(
        sa.select(events.c.rank, events.c.detail)
        .where(events.c.run_id == run_id, events.c.kind == HOST, events.c.attempt == attempt)
        .order_by(events.c.rank, events.c.id)
    )
    return _named({row.rank: msgspec.json.decode(row.detail) for row in found})


def _named(facts: Mapping[int, Mapping[str, object]]) -> dict[int, str]:
    named = {rank: of_rank.get("hostname") for rank, of_rank in facts.items()}
    return {rank: host for rank, host in named.items() if isinstance(host, str) and host}
