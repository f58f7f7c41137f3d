"""The channel between replicas: LISTEN and NOTIFY, on connections of their own."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]

from runwatch_server.db.postgresql_engine import PostgresAddress
from runwatch_server.db.postgresql_errors import DRIVER_ERRORS

_CHANNEL: Final = "runwatch"
_ERRORS: Final = (asyncpg.PostgresError, *DRIVER_ERRORS)


class PostgresChannel:
    """One connection to send and one to listen, each opened when it is needed."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._sending: Any = None

    async def notify(self, payload: str) -> None:
        try:
            if self._sending is None or self._sending.is_closed():
                self._sending = await self._address.connect()
            await self._sending.execute("SELECT pg_notify($1, $2)", _CHANNEL, payload)
        except _ERRORS as error:
            self._drop_sending()
            raise OSError(str(error)) from error

    async def listen(self, on_message: Callable[[str], None]) -> None:
        closed = asyncio.Event()

        def on_end(_: object) -> None:
            closed.set()

        def on_notice(_: object, __: int, ___: str, payload: str) -> None:
            on_message(payload)

        try:
            connection = await self._address.connect()
        except _ERRORS as error:
            raise OSError(str(error)) from error
        try:
            connection.add_termination_listener(on_end)
            await connection.add_listener(_CHANNEL, on_notice)
            await closed.wait()
            raise OSError("the connection was closed")
        except _ERRORS as error:
            raise OSError(str(error)) from error
        finally:
            connection.terminate()

    def _drop_sending(self) -> None:
        """Drop the sending connection, so that the next call opens another: one that was
        interrupted may accept nothing more."""
        if self._sending is not None:
            self._sending.terminate()
            self._sending = None

    async def close(self) -> None:
        if self._sending is not None:
            with suppress(*_ERRORS, OSError):
                await self._sending.close(timeout=2)
