"""Creates, checks and revokes API keys."""

import secrets
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch_server.audit.queries import AuditEntry, append_entry
from runwatch_server.auth import queries
from runwatch_server.auth.keys import (
    ApiKey,
    KeyScope,
    Principal,
    format_key,
    hash_secret,
    new_key_id,
    parse_key,
)
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.errors import NotFoundError, UnauthenticatedError

_CACHE_S: Final = 5.0
"""How long a key is cached: if another process revokes it, it is refused after this long; if this
one does, at once."""
_MAX_CACHED: Final = 10_000


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key with its text, which is shown once and never stored."""

    key: ApiKey
    text: str


class Keys:
    """Checks each request's key; caches keys for some seconds to spare the database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._cached: dict[str, tuple[float, ApiKey]] = {}
        self._used: dict[str, float] = {}

    async def authenticate(self, text: str) -> Principal:
        """The principal of a key's text. Raises UnauthenticatedError, which says what is wrong."""
        key_id, secret = parse_key(text)
        key = await self._find(key_id)
        key.check(secret, self._clock.wall())
        return self._in_use(key)

    async def principal(self, key_id: str) -> Principal:
        """The principal of a key whose secret was checked before.

        Raises UnauthenticatedError if the key was revoked or has expired since.
        """
        key = await self._find(key_id)
        key.check_in_force(self._clock.wall())
        return self._in_use(key)

    async def create(
        self,
        name: str,
        *,
        scopes: AbstractSet[KeyScope],
        project: str | None,
        expires_at: float | None,
        created_by: str,
    ) -> NewKey:
        new = make_key(
            name,
            scopes=scopes,
            project=project,
            expires_at=expires_at,
            created_by=created_by,
            now=self._clock.wall(),
        )
        await self._database.write(lambda connection: _keep(connection, new.key))
        return new

    async def create_first(self, *, are_lost: bool = False) -> NewKey | None:
        """An admin key, if there is no key yet or if all keys are lost; else None."""
        new = make_key(
            "new admin" if are_lost else "first admin",
            scopes={KeyScope.ADMIN},
            project=None,
            expires_at=None,
            created_by="start with --new-admin-key" if are_lost else "first start",
            now=self._clock.wall(),
        )

        async def work(connection: AsyncConnection) -> bool:
            is_wanted = are_lost or not await queries.has_keys(connection)
            if is_wanted:
                await _keep(connection, new.key)
            return is_wanted

        return new if await self._database.write(work) else None

    async def list_keys(
        self,
        *,
        project: str | None = None,
        after: tuple[float, str] | None = None,
        limit: int | None = None,
    ) -> list[ApiKey]:
        """Oldest first; of every project if `project` is None. `after` is the time of creation and
        the id of the last key already seen."""
        async with self._database.read() as connection:
            found = await queries.list_keys(connection, project=project, after=after, limit=limit)
        return [
            replace(key, last_used_at=self._used.get(key.id, key.last_used_at)) for key in found
        ]

    async def revoke(self, key_id: str, *, by: str, within: str | None = None) -> None:
        """Revokes a key at once; revoking it again is no error. `by` is the actor for the audit.

        `within` is the only project whose keys the caller may revoke; None: any. Raises
        NotFoundError.
        """
        async with self._database.read() as connection:
            key = await queries.find_key(connection, key_id)
        if key is None or within not in (None, key.project):
            raise NotFoundError("key_not_found", f"There is no API key {key_id!r}.")
        entry = _audit_entry(key, "key_revoked", by, self._clock.wall())

        async def work(connection: AsyncConnection) -> None:
            if await queries.revoke_key(connection, key_id, entry.at):
                await append_entry(connection, entry)

        await self._database.write(work)
        self._cached.pop(key_id, None)

    async def save_uses(self) -> None:
        """Stores when keys were last used; called periodically, not with each request."""
        used, self._used = self._used, {}
        if used:
            await self._database.write(lambda connection: queries.touch_keys(connection, used))

    def _in_use(self, key: ApiKey) -> Principal:
        self._used[key.id] = self._clock.wall()
        return Principal(key.id, key.name, key.scopes, key.project)

    async def _find(self, key_id: str) -> ApiKey:
        now = self._clock.monotonic()
        cached = self._cached.get(key_id)
        if cached is not None and now - cached[0] < _CACHE_S:
            return cached[1]
        async with self._database.read() as connection:
            key = await queries.find_key(connection, key_id)
        if key is None:
            raise UnauthenticatedError("unknown_key", "The API key is not known here.")
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        self._cached[key_id] = (now, key)
        return key


async def _keep(connection: AsyncConnection, key: ApiKey) -> None:
    await queries.insert_key(connection, key)
    await append_entry(connection, _audit_entry(key, "key_created", key.created_by, key.created_at))


def _audit_entry(key: ApiKey, deed: str, actor: str, at: float) -> AuditEntry:
    return AuditEntry(
        at=at,
        actor=actor,
        deed=deed,
        subject=key.id,
        project=key.project or "",
        detail={"name": key.name, "scopes": sorted(key.scopes), "expires_at": key.expires_at},
    )


def make_key(
    name: str,
    *,
    scopes: AbstractSet[KeyScope],
    project: str | None,
    expires_at: float | None,
    created_by: str,
    now: float,
) -> NewKey:
    """A new random key."""
    key_id, secret = new_key_id(secrets.token_bytes(5)), secrets.token_urlsafe(32)
    key = ApiKey(
        id=key_id,
        name=name,
        secret_hash=hash_secret(secret),
        scopes=frozenset(scopes),
        project=project,
        created_at=now,
        created_by=created_by,
        expires_at=expires_at,
    )
    return NewKey(key, format_key(key_id, secret))
