"""All queries of the tables of rules."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch_server.rules.tables import rule_versions, rules


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRecord:
    """A person's rule as it is stored."""

    id: str
    project: str
    """Empty: every project."""
    name: str
    version: int
    enabled: bool
    document: str
    created_at: float
    updated_at: float
    updated_by: str


async def insert_rule(connection: AsyncConnection, record: RuleRecord) -> None:
    await connection.execute(sa.insert(rules).values(**_columns(record)))
    await _keep_version(connection, record)


async def update_rule(connection: AsyncConnection, record: RuleRecord) -> None:
    await connection.execute(
        sa.update(rules).where(rules.c.id == record.id).values(**_columns(record))
    )
    await _keep_version(connection, record)


async def delete_rule(
    connection: AsyncConnection, record: RuleRecord, *, at: float, actor: str
) -> None:
    """Deletes the rule; its versions stay."""
    await connection.execute(sa.delete(rules).where(rules.c.id == record.id))
    await connection.execute(
        sa.insert(rule_versions).values(
            rule_id=record.id,
            version=record.version + 1,
            enabled=record.enabled,
            deleted=True,
            document=record.document,
            at=at,
            actor=actor,
        )
    )


async def find_rule(connection: AsyncConnection, rule_id: str) -> RuleRecord | None:
    found = await connection.execute(sa.select(rules).where(rules.c.id == rule_id))
    row = found.mappings().first()
    return None if row is None else RuleRecord(**row)


async def find_by_name(connection: AsyncConnection, project: str, name: str) -> RuleRecord | None:
    found = await connection.execute(
        sa.select(rules).where(rules.c.project == project, rules.c.name == name)
    )
    row = found.mappings().first()
    return None if row is None else RuleRecord(**row)


async def list_rules(
    connection: AsyncConnection, *, project: str | None = None
) -> list[RuleRecord]:
    """The rules of all projects, or those in force for one: its own and the global ones."""
    wanted = sa.select(rules).order_by(rules.c.project, rules.c.id)
    if project is not None:
        wanted = wanted.where(rules.c.project.in_(("", project)))
    found = await connection.execute(wanted)
    return [RuleRecord(**row) for row in found.mappings()]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleVersion:
    """A version of a rule, and since when it was in force."""

    rule_id: str
    version: int
    enabled: bool
    deleted: bool
    document: str
    at: float
    actor: str


async def list_versions(
    connection: AsyncConnection, rule_id: str, *, limit: int
) -> list[RuleVersion]:
    """Newest first."""
    wanted = sa.select(rule_versions).where(rule_versions.c.rule_id == rule_id)
    found = await connection.execute(wanted.order_by(rule_versions.c.version.desc()).limit(limit))
    return [RuleVersion(**row) for row in found.mappings()]


async def count_rules(connection: AsyncConnection, project: str) -> int:
    found = await connection.execute(
        sa.select(sa.func.count()).select_from(rules).where(rules.c.project == project)
    )
    return found.scalar_one()


async def _keep_version(connection: AsyncConnection, record: RuleRecord) -> None:
    await connection.execute(
        sa.insert(rule_versions).values(
            rule_id=record.id,
            version=record.version,
            enabled=record.enabled,
            deleted=False,
            document=record.document,
            at=record.updated_at,
            actor=record.updated_by,
        )
    )


def _columns(record: RuleRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in _NAMES}


_NAMES = tuple(column.name for column in rules.columns)
