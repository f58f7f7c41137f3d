"""Locks with names, held to the end of a transaction; SQLite's only writer needs none."""

import hashlib
from typing import Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

EVENTS: Final = "events"
"""Events are numbered in the order in which they can be seen: whoever has read one will find
nothing new before it."""
_LOCK: Final = sa.text("SELECT pg_advisory_xact_lock(:number)")


async def wait_for_lock(connection: AsyncConnection, name: str) -> None:
    """Until the end of this transaction nobody else gets past this line with that name."""
    if connection.dialect.name == "postgresql":
        await connection.execute(_LOCK, {"number": lock_number(name)})


def lock_number(name: str) -> int:
    """A name as the 64-bit number that PostgreSQL locks by."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, person=b"runwatch").digest()
    return int.from_bytes(digest, "big", signed=True)
