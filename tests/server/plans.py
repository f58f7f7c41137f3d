"""How SQLite looks for what it is asked."""

from collections.abc import Awaitable, Callable
from typing import Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch_server.db import Database


async def plan_of(
    database: Database, ask: Callable[[AsyncConnection], Awaitable[object]]
) -> list[str]:
    """What SQLite does for the first statement of a question."""
    asked: list[tuple[str, Any]] = []

    def note(_: object, __: object, statement: str, parameters: Any, *___: object) -> None:
        asked.append((statement, parameters))

    async def work(connection: AsyncConnection) -> list[str]:
        event.listen(connection.sync_connection, "before_cursor_execute", note)
        await ask(connection)
        event.remove(connection.sync_connection, "before_cursor_execute", note)
        statement, parameters = asked[0]
        rows = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        return [row.detail for row in rows]

    return await database.write(work)
