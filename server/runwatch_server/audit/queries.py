"""Appends to the audit and reads it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId
from runwatch_server.audit.chain import digest_of
from runwatch_server.audit.tables import audit
from runwatch_server.clock import rfc3339
from runwatch_server.db import EVENTS, wait_for_lock


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One entry of the audit: what a key, a person with a session, or `policy` did."""

    at: float
    actor: str
    deed: str
    subject: str
    project: str = ""
    about_run: RunId | None = None
    detail: Mapping[str, object]
    """JSON values. A time, in Unix seconds, has a name that ends in `_at`."""
    number: int = 0
    """Assigned when the entry is stored."""
    digest: str | None = None
    """Assigned when the entry is stored; None if a version without the chain wrote it."""

    @property
    def readable_detail(self) -> dict[str, object]:
        """The detail with its times in RFC 3339, as everywhere in JSON. They are stored as they
        were written, because the chain's digests cover them."""
        return {
            name: msgspec.to_builtins(rfc3339(value))
            if name.endswith("_at") and isinstance(value, int | float)
            else value
            for name, value in self.detail.items()
        }


async def append_entry(connection: AsyncConnection, entry: AuditEntry) -> None:
    """Appends an entry to the chain; no other can be appended until this transaction ends."""
    await wait_for_lock(connection, EVENTS)
    row: dict[str, object] = {
        "at": entry.at,
        "actor": entry.actor,
        "project": entry.project,
        "about_run": entry.about_run,
        "deed": entry.deed,
        "subject": entry.subject,
        "detail": msgspec.json.encode(entry.detail).decode(),
    }
    newest = sa.select(audit.c.digest).where(audit.c.digest.is_not(None))
    before = await connection.scalar(newest.order_by(audit.c.number.desc()).limit(1))
    await connection.execute(audit.insert().values(**row, digest=digest_of(row, before or "")))


async def list_entries(
    connection: AsyncConnection,
    *,
    project: str | None,
    about_run: RunId | None = None,
    before: int | None = None,
    limit: int,
) -> list[AuditEntry]:
    """Deeds, newest first; of every project if `project` is None."""
    wanted = sa.select(audit).order_by(audit.c.number.desc()).limit(limit)
    if project is not None:
        wanted = wanted.where(audit.c.project == project)
    if about_run is not None:
        wanted = wanted.where(audit.c.about_run == about_run)
    if before is not None:
        wanted = wanted.where(audit.c.number < before)
    found = await connection.execute(wanted)
    return [_audit_entry(row) for row in found.mappings()]


def _audit_entry(row: sa.RowMapping) -> AuditEntry:
    columns: dict[str, Any] = {**row, "detail": msgspec.json.decode(row["detail"])}
    return AuditEntry(**columns)
