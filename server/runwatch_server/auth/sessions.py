"""Sessions of the page: a cookie and a page secret that stand for a key, so that no script holds
the key itself.

A browser sends the cookie to every port of this host, so also to a program of another user. The
page secret is kept by the page's origin, which includes the port, and sent by the page's scripts
alone. Both are of 256 random bits. The cookie contains the page secret's hash, so that neither is
made from the other; only the cookie's hash is stored. A session ends when its key does, when it
expires, or when its owner logs out.
"""

import hmac
import secrets
from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch_server.audit.queries import AuditEntry, append_entry
from runwatch_server.auth import session_queries
from runwatch_server.auth.keys import Principal, hash_secret
from runwatch_server.auth.service import Keys
from runwatch_server.auth.session_queries import Session
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.errors import UnauthenticatedError

SESSION_S: Final = 12 * 3600.0
"""Lifetime of a session: one shift, so that people on call log in once."""

_CACHE_S: Final = 5.0
"""How long a session is cached: if another process ends it, it is refused after this long; if this
one does, at once."""
_MAX_CACHED: Final = 10_000


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """The two halves of a new session."""

    cookie: str
    page_secret: str


class Sessions:
    """Opens, finds and ends sessions."""

    def __init__(self, database: Database, clock: Clock, keys: Keys) -> None:
        self._database = database
        self._clock = clock
        self._keys = keys
        self._cached: dict[str, tuple[float, Session]] = {}

    async def open(self, principal: Principal) -> OpenedSession:
        page_secret, now = secrets.token_urlsafe(32), self._clock.wall()
        cookie = f"{secrets.token_urlsafe(32)}.{hash_secret(page_secret)}"
        session = Session(
            secret_hash=hash_secret(cookie),
            key_id=principal.key_id,
            created_at=now,
            expires_at=now + SESSION_S,
        )
        entry = AuditEntry(
            at=now,
            actor=principal.actor,
            deed="session_opened",
            subject=principal.key_id,
            project=principal.project or "",
            detail={"expires_at": session.expires_at},
        )

        async def work(connection: AsyncConnection) -> None:
            await session_queries.insert_session(connection, session)
            await append_entry(connection, entry)

        await self._database.write(work)
        return OpenedSession(cookie, page_secret)

    async def authenticate(self, cookie: str) -> Principal:
        """The session's owner. Raises UnauthenticatedError, which says why the session is over."""
        session = await self._find(hash_secret(cookie))
        if not self._clock.wall() < session.expires_at:
            raise UnauthenticatedError("expired_session", "The session has expired: log in again.")
        return await self._keys.principal(session.key_id)

    async def close(self, cookie: str) -> None:
        """Ends the session; ending it again is no error."""
        secret_hash = hash_secret(cookie)
        await self._database.write(
            lambda connection: session_queries.delete_session(connection, secret_hash)
        )
        self._cached.pop(secret_hash, None)

    async def _find(self, secret_hash: str) -> Session:
        now = self._clock.monotonic()
        cached = self._cached.get(secret_hash)
        if cached is not None and now - cached[0] < _CACHE_S:
            return cached[1]
        async with self._database.read() as connection:
            found = await session_queries.find_session(connection, secret_hash)
        if found is None:
            raise UnauthenticatedError("unknown_session", "The session is over: log in again.")
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        self._cached[secret_hash] = (now, found)
        return found


def belong_together(cookie: str, page_secret: str) -> bool:
    """Whether these are the halves of one session."""
    return hmac.compare_digest(cookie.partition(".")[2], hash_secret(page_secret))
