"""Reading alerts for users: lists, diagnosis cards and acknowledgements."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import AlertId, RunId
from runwatch_server.alerts import event_queries, queries
from runwatch_server.alerts.announcements import Announcer
from runwatch_server.alerts.diagnosis.card import DiagnosisView, card_of, similar_of
from runwatch_server.alerts.diagnosis.findings import BEFORE_STEPS, SignFinder
from runwatch_server.alerts.evaluation.frame_queries import list_behind, list_unjudged_arrivals
from runwatch_server.alerts.records import AlertEvent, AlertFilter, AlertRecord, RunEvent
from runwatch_server.audit.queries import AuditEntry, append_entry
from runwatch_server.clock import Clock
from runwatch_server.commands.queries import list_for_alert
from runwatch_server.commands.records import CommandRecord
from runwatch_server.db import Database
from runwatch_server.errors import NotFoundError

_MOST_SIMILAR: Final = 5
_MOST_LOOKED_AT: Final = 200
"""Most alerts of one run and rule examined when looking for similar earlier ones: that many ranks
may have one at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """All that is known of one alert."""

    alert: AlertRecord
    events: Sequence[AlertEvent]
    commands: Sequence[CommandRecord]
    changed_before: Sequence[RunEvent]
    """Phases, resumes, rollbacks, changes of the LR scale shortly before the onset."""
    similar: Sequence[AlertRecord]
    """Earlier alerts of the same rule in the same project: those of this run first, each newest
    first."""
    diagnosis: DiagnosisView


class Alerts:
    """Reads alerts and records acknowledgements."""

    def __init__(
        self, database: Database, clock: Clock, announcer: Announcer, sign_finder: SignFinder
    ) -> None:
        self._sign_finder = sign_finder
        self._database = database
        self._clock = clock
        self._announcer = announcer

    async def list(self, wanted: AlertFilter, *, limit: int) -> list[AlertRecord]:
        """Alerts, newest first."""
        async with self._database.read() as connection:
            return await queries.list_alerts(connection, wanted, limit=limit)

    async def is_judged(self, run_id: RunId) -> bool:
        """Whether every stored frame of the run has been judged."""
        async with self._database.read() as connection:
            return not await list_behind(connection, [run_id])

    async def unjudged_since(self, run_id: RunId) -> float | None:
        """When the oldest unjudged frame of the run arrived, in Unix seconds; None if all have been
        judged."""
        async with self._database.read() as connection:
            arrivals = await list_unjudged_arrivals(connection, run_id)
        now = self._clock.wall()
        return min((now if at is None else at for at in arrivals), default=None)

    async def get(self, alert_id: AlertId) -> AlertRecord:
        """Raises NotFoundError."""
        async with self._database.read() as connection:
            return await _existing(connection, alert_id)

    async def card(self, alert: AlertRecord) -> Card:
        async with self._database.read() as connection:
            events = await event_queries.list_events(connection, alert.run_id, alert.id)
            commands = await list_for_alert(connection, alert.run_id, alert.id)
            changed = await event_queries.list_run_events(
                connection,
                alert.run_id,
                attempt=alert.attempt,
                first_step=alert.onset_step - BEFORE_STEPS,
                last_step=alert.onset_step,
                limit=20,
            )
            similar = await _similar(connection, alert)
            tried = [
                similar_of(one, await list_for_alert(connection, one.run_id, one.id))
                for one in similar
            ]
        in_run = sum(one.run_id == alert.run_id for one in similar)
        findings = await self._sign_finder.find(alert, num_similar=in_run)
        return Card(
            alert=alert,
            events=events,
            commands=commands,
            changed_before=changed,
            similar=similar,
            diagnosis=card_of(alert, findings, commands, tried),
        )

    async def acknowledge(self, alert_id: AlertId, *, actor: str, note: str) -> AlertRecord:
        """Acknowledge an alert; the name of the first person stays. Raises NotFoundError."""

        async def work(connection: AsyncConnection) -> AlertRecord:
            alert = await _existing(connection, alert_id)
            if alert.acked_at is not None:
                return alert
            now = self._clock.wall()
            after = replace(alert, acked_at=now, acked_by=actor, ack_note=note)
            await queries.update_alert(connection, after)
            await event_queries.append_event(
                connection, after, "acknowledged", at=now, actor=actor, detail={"note": note}
            )
            await append_entry(
                connection,
                AuditEntry(
                    at=now,
                    actor=actor,
                    deed="alert_acknowledged",
                    subject=alert.id,
                    project=alert.project,
                    about_run=alert.run_id,
                    detail={"rule": alert.rule, "note": note},
                ),
            )
            return after

        alert = await self.get(alert_id)
        record = await self._database.write(work, of=alert.run_id)
        self._announcer.wake()
        return record


async def _existing(connection: AsyncConnection, alert_id: AlertId) -> AlertRecord:
    alert = await queries.find_alert(connection, alert_id)
    if alert is None:
        raise NotFoundError("alert_not_found", f"There is no alert {alert_id!r}.")
    return alert


async def _similar(connection: AsyncConnection, alert: AlertRecord) -> list[AlertRecord]:
    in_run = AlertFilter(run_id=alert.run_id, rule=alert.rule, before_id=alert.id)
    in_project = AlertFilter(projects=(alert.project,), rule=alert.rule, before_id=alert.id)
    found = await queries.list_alerts(connection, in_run, limit=_MOST_LOOKED_AT)
    others = await queries.list_alerts(connection, in_project, limit=2 * _MOST_SIMILAR)
    before = [one for one in found if not _is_at_once(one, alert)]
    return [*before, *(one for one in others if one.run_id != alert.run_id)][:_MOST_SIMILAR]


def _is_at_once(one: AlertRecord, alert: AlertRecord) -> bool:
    """Whether both alerts are of one run and open at the same time: each rank has its own, so
    neither came before."""
    is_beside = (one.attempt, one.segment) == (alert.attempt, alert.segment)
    return is_beside and (one.resolved_step is None or one.resolved_step >= alert.onset_step)
