"""Inserts rows that several writers may insert at the same time."""

from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection


async def insert_if_absent(
    connection: AsyncConnection, table: sa.Table, row: Mapping[str, object]
) -> None:
    """Insert a row, unless one with its key exists or is being inserted by another transaction."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    await connection.execute(insert(table).values(**row).on_conflict_do_nothing())
