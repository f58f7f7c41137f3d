"""A hash chain over the audit: each entry carries a digest of itself and of the digest before it.

To change, remove or insert an entry breaks every link from there on, unless all later digests are
recomputed. To detect that, or a cut-off end, keep a copy of the newest digest somewhere else.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch_server.audit.tables import audit

_FIELDS: Final = ("at", "actor", "project", "about_run", "deed", "subject", "detail")
_CHUNK: Final = 1000


def digest_of(row: Mapping[Any, Any], before: str) -> str:
    """SHA-256 in hexadecimal of a row and the digest before it (empty for the first row)."""
    facts = [before, *(row[name] for name in _FIELDS)]
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()


async def find_breaks(connection: AsyncConnection) -> list[str]:
    """Messages about entries that were altered.

    Deeds written before the chain was introduced have no digest; they are no fault.
    """
    breaks: list[str] = []
    before, number = "", 0
    while rows := await _next_rows(connection, number):
        for row in rows:
            number, found = row["number"], row["digest"]
            if found is None:
                if before:
                    breaks.append(f"audit: deed {number} was added without a digest")
                continue
            if found != digest_of(row, before):
                breaks.append(f"audit: deed {number}, or what came before it, was changed")
            before = found
    return breaks


async def _next_rows(connection: AsyncConnection, number: int) -> list[sa.RowMapping]:
    query = sa.select(audit).where(audit.c.number > number).order_by(audit.c.number)
    return list((await connection.execute(query.limit(_CHUNK))).mappings())
