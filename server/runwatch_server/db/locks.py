"""Named locks, held until the end of a transaction; SQLite, with its single writer, needs none."""

import hashlib
from typing import Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

EVENTS: Final = "events"
"""Events are numbered in the order in which they become visible: whoever has read one will find
nothing new before it."""
_LOCK: Final = sa.text("SELECT pg_advisory_xact_lock(:number)")


async def wait_for_lock(connection: AsyncConnection, name: str) -> None:
    """Take a lock until the end of this transaction; others that take the same name wait here."""
    if connection.dialect.name == "postgresql":
        await connection.execute(_LOCK, {"number": lock_number(name)})


def lock_number(name: str) -> int:
    """The 64-bit number by which PostgreSQL locks a name."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, person=b"runwatch").digest()
    return int.from_bytes(digest, "big", signed=True)
