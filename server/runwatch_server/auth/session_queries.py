"""All queries of the table of sessions."""

from dataclasses import asdict, dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch_server.auth.tables import sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session as it is stored."""

    secret_hash: str
    key_id: str
    created_at: float
    expires_at: float


async def insert_session(connection: AsyncConnection, session: Session) -> None:
    await connection.execute(sessions.insert().values(**asdict(session)))


async def find_session(connection: AsyncConnection, secret_hash: str) -> Session | None:
    found = await connection.execute(
        sa.select(sessions).where(sessions.c.secret_hash == secret_hash)
    )
    row = found.mappings().one_or_none()
    return None if row is None else Session(**row)


async def delete_session(connection: AsyncConnection, secret_hash: str) -> None:
    await connection.execute(sessions.delete().where(sessions.c.secret_hash == secret_hash))


async def delete_expired_sessions(connection: AsyncConnection, now: float) -> int:
    """Removes expired sessions; returns how many."""
    deleted = await connection.execute(sessions.delete().where(sessions.c.expires_at <= now))
    return deleted.rowcount
