"""Stores people's rules, and says which rules judge a run."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.errors import Fault, RuleError
from runwatch_server.audit.queries import AuditEntry, append_entry
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.errors import (
    ChangedMeanwhileError,
    ConflictError,
    NotFoundError,
    UnprocessableError,
)
from runwatch_server.rules import queries
from runwatch_server.rules.own_names import PROTECTED_NAMES
from runwatch_server.rules.pack import FiledRule, RuleSet, layered, load_builtin, split_file
from runwatch_server.rules.queries import RuleRecord
from runwatch_server.rules.state_limit import check_state

MAX_RULES: Final = 200
"""Most rules of one project, and most global ones."""


class Rules:
    """The built-in pack and people's rules. Those of IN_CODE are separate and cannot be changed."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._in_force: dict[str, RuleSet] = {}
        self._read_last: dict[str, tuple[Sequence[RuleRecord], RuleSet]] = {}
        """What was read of a project, and what it came to. Replicas read it again every two
        seconds, and people's rules take a millisecond each to parse."""
        self._one_reading = asyncio.Lock()
        """Of those who find nothing in force, all runs that are judged may be, one reads."""
        self._num_changes = 0
        self._one_change = asyncio.Lock()
        """Serializes changes: the rules in force are read again before the next change is checked
        against them."""
        self._listeners: list[Callable[[], None]] = []
        self.builtin = load_builtin()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Registers a listener that is called whenever rules have changed."""
        self._listeners.append(listener)

    async def in_force(self, project: str) -> RuleSet:
        """The rules that judge the runs of a project now.

        Of rules with the same name, a project's own overrides a global one, which overrides the
        built-in one; a disabled rule removes it.
        """
        if (known := self._in_force.get(project)) is not None:
            return known
        async with self._one_reading:
            while (known := self._in_force.get(project)) is None:
                num_changes = self._num_changes
                rule_set = await self._read(project)
                if num_changes == self._num_changes:  # otherwise what was read may be outdated
                    self._in_force[project] = rule_set
        return known

    async def _read(self, project: str) -> RuleSet:
        async with self._database.read() as connection:
            records = await queries.list_rules(connection, project=project)
        before, rule_set = self._read_last.get(project, ((), None))
        if rule_set is None or records != before:
            rule_set = layered(
                {filed.rule.name: filed for filed in self.builtin},
                _layer([record for record in records if record.project == ""]),
                _layer([record for record in records if record.project != ""]),
            )
            self._read_last[project] = (records, rule_set)
        return rule_set

    def find_builtin(self, name: str) -> FiledRule:
        """A rule of the pack. Raises NotFoundError, also for the rules in code."""
        for filed in self.builtin:
            if filed.rule.name == name:
                return filed
        raise NotFoundError("rule_not_found", f"There is no built-in rule {name!r}.")

    async def list_all(self, project: str | None) -> list[RuleRecord]:
        """People's rules: those in force for a project, or all."""
        async with self._database.read() as connection:
            return await queries.list_rules(connection, project=project)

    async def label_names(self, project: str | None) -> frozenset[str]:
        """The labels that rules add to their alerts: built-in rules, and those of `list_all`."""
        own = _filed(await self.list_all(project))
        return frozenset(name for filed in (*self.builtin, *own) for name in filed.rule.labels)

    async def get(self, rule_id: str) -> RuleRecord:
        """Raises NotFoundError."""
        async with self._database.read() as connection:
            return await _existing(connection, rule_id)

    async def create(
        self, filed_rules: Sequence[FiledRule], *, project: str, enabled: bool, actor: str
    ) -> list[RuleRecord]:
        """Adds all of these rules, or none. Raises ConflictError, UnprocessableError."""
        for filed in filed_rules:
            refuse_protected(filed.rule.name)

        async def work(connection: AsyncConnection) -> list[RuleRecord]:
            held = await queries.count_rules(connection, project)
            if held + len(filed_rules) > MAX_RULES:
                raise UnprocessableError(
                    "too_many_rules",
                    f"found {held} rules and {len(filed_rules)} more, wanted at most {MAX_RULES}",
                )
            added = [
                await self._insert(connection, filed, project, enabled, actor)
                for filed in filed_rules
            ]
            _check_state(in_force, filed_rules, enabled)
            return added

        async with self._one_change:
            in_force = await self._read(project)
            records = await self._database.write(work)
            self._changed()
        return records

    async def replace(
        self,
        rule_id: str,
        filed_rules: Sequence[FiledRule],
        *,
        version: int,
        enabled: bool,
        actor: str,
    ) -> RuleRecord:
        """Stores a new version of a rule. Raises RuleError, ChangedMeanwhileError."""
        for filed in filed_rules:
            refuse_protected(filed.rule.name)
        if len(filed_rules) != 1:
            raise RuleError([Fault("groups", f"found {len(filed_rules)} rules, wanted one")])

        async def work(connection: AsyncConnection) -> RuleRecord:
            before = await _unchanged(connection, rule_id, version)
            name = filed_rules[0].rule.name
            if name != before.name:
                raise UnprocessableError(
                    "renamed_rule", f"alert: found {name!r}, wanted {before.name!r} as before"
                )
            after = replace(
                before,
                version=before.version + 1,
                enabled=enabled,
                document=filed_rules[0].text,
                updated_at=self._clock.wall(),
                updated_by=actor,
            )
            _check_state(in_force, filed_rules, enabled)
            await queries.update_rule(connection, after)
            await _audit(connection, after, "rule_changed")
            return after

        async with self._one_change:
            in_force = await self._read((await self.get(rule_id)).project)
            record = await self._database.write(work)
            self._changed()
        return record

    async def delete(self, rule_id: str, *, version: int, actor: str) -> None:
        """Raises NotFoundError, ChangedMeanwhileError."""

        async def work(connection: AsyncConnection) -> None:
            record = await _unchanged(connection, rule_id, version)
            now = self._clock.wall()
            await queries.delete_rule(connection, record, at=now, actor=actor)
            gone = replace(record, updated_at=now, updated_by=actor)
            await _audit(connection, gone, "rule_deleted")

        await self._database.write(work)
        self._changed()

    async def _insert(
        self,
        connection: AsyncConnection,
        filed: FiledRule,
        project: str,
        enabled: bool,
        actor: str,
    ) -> RuleRecord:
        name = filed.rule.name
        if await queries.find_by_name(connection, project, name) is not None:
            raise ConflictError("rule_exists", f"A rule {name!r} exists already: change it by PUT.")
        now = self._clock.wall()
        record = RuleRecord(
            id=self._clock.new_ulid(),
            project=project,
            name=name,
            version=1,
            enabled=enabled,
            document=filed.text,
            created_at=now,
            updated_at=now,
            updated_by=actor,
        )
        await queries.insert_rule(connection, record)
        await _audit(connection, record, "rule_created")
        return record

    def invalidate(self) -> None:
        """Another replica may have changed rules."""
        self._in_force.clear()
        self._num_changes += 1

    def _changed(self) -> None:
        self.invalidate()
        for listener in self._listeners:
            listener()


def refuse_protected(name: str) -> None:
    """Raises ConflictError for the name of a rule in code, which nobody can change."""
    if name in PROTECTED_NAMES:
        raise ConflictError(
            "protected_rule", f"{name} is built in and cannot be changed or removed."
        )


def _check_state(before: RuleSet, changed: Sequence[FiledRule], enabled: bool) -> None:
    """Raises UnprocessableError. A global rule counts with the global ones only, not with those of
    each project."""
    layer = {filed.rule.name: filed if enabled else None for filed in changed}
    check_state(before, layered({filed.rule.name: filed for filed in before.filed}, layer))


def _layer(records: Sequence[RuleRecord]) -> dict[str, FiledRule | None]:
    return {
        record.name: filed if record.enabled else None
        for record, filed in zip(records, _filed(records), strict=True)
    }


def _filed(records: Sequence[RuleRecord]) -> list[FiledRule]:
    return [
        filed for record in records for filed in split_file(msgspec.json.decode(record.document))
    ]


async def _existing(connection: AsyncConnection, rule_id: str) -> RuleRecord:
    record = await queries.find_rule(connection, rule_id)
    if record is None:
        raise NotFoundError("rule_not_found", f"There is no rule {rule_id!r}.")
    return record


async def _unchanged(connection: AsyncConnection, rule_id: str, version: int) -> RuleRecord:
    record = await _existing(connection, rule_id)
    if record.version != version:
        raise ChangedMeanwhileError(
            "changed_meanwhile", f"found version {record.version}, wanted {version} by If-Match"
        )
    return record


async def _audit(connection: AsyncConnection, record: RuleRecord, deed: str) -> None:
    await append_entry(
        connection,
        AuditEntry(
            at=record.updated_at,
            actor=record.updated_by,
            deed=deed,
            subject=record.id,
            project=record.project,
            detail={"name": record.name, "version": record.version, "enabled": record.enabled},
        ),
    )
