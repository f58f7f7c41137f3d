"""All queries of the table of API keys."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch_server.auth.keys import ApiKey, KeyScope
from runwatch_server.auth.tables import api_keys


async def insert_key(connection: AsyncConnection, key: ApiKey) -> None:
    await connection.execute(
        api_keys.insert().values(
            id=key.id,
            name=key.name,
            secret_hash=key.secret_hash,
            scopes=" ".join(sorted(key.scopes)),
            project=key.project,
            created_at=key.created_at,
            created_by=key.created_by,
            expires_at=key.expires_at,
        )
    )


async def find_key(connection: AsyncConnection, key_id: str) -> ApiKey | None:
    found = await connection.execute(sa.select(api_keys).where(api_keys.c.id == key_id))
    row = found.one_or_none()
    return None if row is None else _key(row)


async def list_keys(
    connection: AsyncConnection,
    *,
    project: str | None = None,
    after: tuple[float, str] | None = None,
    limit: int | None = None,
) -> list[ApiKey]:
    """Oldest first; of every project if `project` is None. `after` is the time of creation and the
    id of the last key already seen."""
    query = sa.select(api_keys).order_by(api_keys.c.created_at, api_keys.c.id).limit(limit)
    if project is not None:
        query = query.where(api_keys.c.project == project)
    if after is not None:
        query = query.where(sa.tuple_(api_keys.c.created_at, api_keys.c.id) > sa.tuple_(*after))
    return [_key(row) for row in await connection.execute(query)]


async def has_keys(connection: AsyncConnection) -> bool:
    return (await connection.execute(sa.select(api_keys.c.id).limit(1))).first() is not None


async def revoke_key(connection: AsyncConnection, key_id: str, at: float) -> bool:
    """Revokes a key; False if it was revoked already or does not exist."""
    revoked = await connection.execute(
        api_keys.update()
        .where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
        .values(revoked_at=at)
    )
    return revoked.rowcount == 1


async def touch_keys(connection: AsyncConnection, used: dict[str, float]) -> None:
    """Stores when keys were last used."""
    for key_id, at in used.items():
        await connection.execute(
            api_keys.update().where(api_keys.c.id == key_id).values(last_used_at=at)
        )


async def delete_dead_keys(connection: AsyncConnection, before: float) -> int:
    """Removes keys that expired or were revoked before a time; returns how many."""
    deleted = await connection.execute(
        api_keys.delete().where(
            sa.or_(api_keys.c.expires_at < before, api_keys.c.revoked_at < before)
        )
    )
    return deleted.rowcount


def _key(row: sa.Row[tuple[object, ...]]) -> ApiKey:
    return ApiKey(
        id=row.id,
        name=row.name,
        secret_hash=row.secret_hash,
        scopes=frozenset(KeyScope(scope) for scope in row.scopes.split()),
        project=row.project,
        created_at=row.created_at,
        created_by=row.created_by,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
    )
