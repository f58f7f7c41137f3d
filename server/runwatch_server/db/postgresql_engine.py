"""Connections to PostgreSQL. asyncpg reads URLs and `PG...` variables as libpq does."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy import event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from runwatch.addresses import place_of
from runwatch_server.cancellation import result_of
from runwatch_server.errors import SettingsError

_untyped: Any = asyncpg
IsolationLevel = Literal["AUTOCOMMIT", "READ COMMITTED", "REPEATABLE READ"]
_SCHEMES: Final = ("postgresql", "postgres", "postgresql+asyncpg")
_CONNECT_S: Final = 10.0
_COMMAND_S: Final = 60.0
_SESSION: Final = {
    "application_name": "runwatch",
    "idle_in_transaction_session_timeout": "5s",
    "lock_timeout": "15s",
    "jit": "off",
    "timezone": "UTC",
}
"""The limit for how long a replica that is paused in the middle of a transaction keeps others
waiting."""
_PEER_GONE_MS: Final = 60_000
_KEEPALIVES: Final = {
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": _PEER_GONE_MS,
}
"""Options of the connection's socket, as far as the system has them. A firewall that forgets idle
connections, often after a few minutes, would otherwise cut off a migration during a long statement,
and neither side would ever know. The last option is for what was sent and never confirmed."""
_LONGEST_WRITE: Final = "SET transaction_timeout = '30s'"
"""A further limit, because a process that is paused between preparing a statement and running it,
which the driver sends separately, is not idle for PostgreSQL, and would keep others waiting for as
long as it is paused."""
_SINCE_VERSION: Final = 17


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """Where the database is. Raises SettingsError for an invalid URL."""

    url: str = field(repr=False)

    def __post_init__(self) -> None:
        if not _is_usable(self.url) or self.shown.endswith("://..."):
            raise SettingsError(
                f"database_url: found {self.shown}, wanted postgresql://user@host:port/name, with "
                "@ : / ? # in a password written as %40 %3A %2F %3F %23"
            )

    @property
    def dsn(self) -> str:
        return "postgresql://" + self.url.split("://", 1)[1]

    @property
    def shown(self) -> str:
        """The URL without user, password and options."""
        return place_of(self.url)

    async def connect(self, *, is_bounded: bool = True) -> Any:
        """A connection of asyncpg. If the caller is cancelled, it is still opened and then dropped:
        asyncpg would otherwise leave a future whose error nobody retrieves. If `is_bounded`, each
        statement is ended after a minute."""
        making = asyncio.ensure_future(
            _untyped.connect(
                self.dsn,
                timeout=_CONNECT_S,
                command_timeout=_COMMAND_S if is_bounded else None,
                server_settings=_SESSION,
            )
        )
        try:
            return _kept_alive(await result_of(making))
        except asyncio.CancelledError:
            if making.exception() is None:
                making.result().terminate()
            raise


def _is_usable(url: str) -> bool:
    try:
        return urlsplit(url).scheme in _SCHEMES
    except ValueError:  # its text may hold the password, as would the driver's later
        return False


def make_engine(
    address: PostgresAddress,
    *,
    num_connections: int,
    isolation_level: IsolationLevel,
    execution_options: Mapping[str, Any] | None = None,
    connect: Callable[[], Awaitable[Any]] | None = None,
) -> AsyncEngine:
    """An engine; `connect` replaces the address's own method."""
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=connect or address.connect,
        pool_size=num_connections,
        max_overflow=0,
        pool_timeout=_COMMAND_S,
        isolation_level=isolation_level,  # once per connection, not per checkout
        execution_options=execution_options or {},
    )
    event.listen(engine.sync_engine, "checkout", _refuse_closed)
    return engine


async def connect_writer(address: PostgresAddress) -> Any:
    """A connection whose transactions are cut off if they take too long, whatever they do."""
    connection = await address.connect()
    if connection.get_server_version().major >= _SINCE_VERSION:
        try:
            await connection.execute(_LONGEST_WRITE)
        except BaseException:
            connection.terminate()
            raise
    return connection


def migrating_engine(address: PostgresAddress) -> AsyncEngine:
    """An engine for upgrades, whose statements may process tables of any size, so the driver ends
    none."""
    return make_engine(
        address,
        num_connections=1,
        isolation_level="READ COMMITTED",
        connect=partial(address.connect, is_bounded=False),
    )


def _kept_alive(connection: Any) -> Any:
    """The connection, which now notices within a minute that the other side is gone."""
    # asyncpg has no option for it, and hands out neither its socket nor its transport.
    peer: socket.socket = connection._transport.get_extra_info("socket")
    if peer.family != socket.AF_UNIX:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVES.items():
            if hasattr(socket, name):  # macOS names the first one differently
                peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


def _refuse_closed(connection: Any, entry: ConnectionPoolEntry, _: object) -> None:
    """Reject a connection that the server has closed, which shows without a query; the pool takes
    another."""
    if entry.driver_connection is not None and entry.driver_connection.is_closed():
        raise DisconnectionError("closed by the server")
