"""Takes the next rung of an alert's ladder if what was done before did not help.

This is the only place that decides it. For use inside the transaction that gives the verdict: the
rung and its command are stored with the verdict, so that a replica that takes over continues where
the other stopped and orders nothing twice.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.alerts import AlertState
from runwatch.commands import AnyAction
from runwatch.ladders import Page, begins_at_once, can_wait_for, words_of
from runwatch.vocabulary import Severity
from runwatch_server.alerts import event_queries, queries
from runwatch_server.alerts.actions.acting import Actor
from runwatch_server.alerts.actions.rungs import FIRST_RUNG, WAITS, next_rung
from runwatch_server.alerts.records import AlertRecord, Recovery
from runwatch_server.commands import queries as command_queries
from runwatch_server.commands.changes import POLICY
from runwatch_server.commands.lifecycle import UNDER_WAY

_ACKNOWLEDGED: Final = "acknowledged"
"""A person has taken over, so nothing more is done automatically."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """Takes the rungs of the ladders of one run, at one step of one segment."""

    actor: Actor
    page: Callable[[AsyncConnection, AlertRecord], Awaitable[None]]
    segment: int
    step: int

    async def begin(
        self, connection: AsyncConnection, alert: AlertRecord, actions: Sequence[AnyAction]
    ) -> bool:
        """Take the first rung of an alert that has just fired, if nothing else was done that could
        help. Returns whether a command came of it. An alert that was released and is reported again
        has had its first rung already."""
        if alert.rung is not None or alert.recovery is not None:
            return False
        if not begins_at_once(actions) and await self._is_helped(connection, alert):
            return False
        return await self.escalate(connection, alert)

    async def escalate(self, connection: AsyncConnection, found: AlertRecord) -> bool:
        """Take the next rung that can be taken now. Returns whether a command came of it."""
        alert = await queries.find_alert(connection, found.id)
        if alert is None or alert.shadow or not self._is_at_work(alert):
            return False
        ladder, turn = alert.facts.ladder, next_rung(alert)
        pause = _why_not_now(alert)
        if pause is not None and turn < len(ladder):
            await self._pause(connection, alert, turn, pause)
            return False
        for index in range(turn, len(ladder)):
            rung = ladder[index]
            if isinstance(rung, Page):
                await self._call(connection, alert, index)
                return False
            objection = await self.actor.take(
                connection,
                alert,
                rung,
                index=FIRST_RUNG + index,
                step=self.step,
                segment=self.segment,
            )
            if objection is not None and can_wait_for(objection):
                await self._wait(connection, alert, index, objection)
                return False
            alert = replace(alert, rung=index)
            await queries.update_alert(connection, alert)
            if objection is None:
                return True
            await self._note(connection, alert, "rung_passed_over", index, objection)
        if ladder and found.rung != alert.rung:
            await self._note(connection, alert, "ladder_ended", len(ladder) - 1, "")
        return False

    def _is_at_work(self, alert: AlertRecord) -> bool:
        """Whether the alert is open and its run goes on: frames may be judged after the run's
        end."""
        return alert.state.is_open and self.actor.can_act_on(alert)

    async def _is_helped(self, connection: AsyncConnection, alert: AlertRecord) -> bool:
        """Whether any action of the alert may still be carried out."""
        commands = await command_queries.list_for_alert(connection, alert.run_id, alert.id)
        return any(command.state in UNDER_WAY for command in commands)

    async def _call(self, connection: AsyncConnection, alert: AlertRecord, index: int) -> None:
        """Nothing has helped: page a person."""
        paged = replace(alert, rung=index, severity=Severity.CRITICAL)
        await queries.update_alert(connection, paged)
        await self._note(connection, paged, "paged", index, "")
        await self.page(connection, paged)

    async def _pause(
        self, connection: AsyncConnection, alert: AlertRecord, index: int, why: str
    ) -> None:
        """Stop escalating: for good if a person has taken over, otherwise for a while."""
        if why == _ACKNOWLEDGED:
            await self._note_once(connection, alert, "ladder_held", index, why)
        else:
            await self._wait(connection, alert, index, why)

    async def _wait(
        self, connection: AsyncConnection, alert: AlertRecord, index: int, objection: str
    ) -> None:
        """Look again later, because something else is being done to the run or goes on in it."""
        waits = replace(
            alert, recovery=Recovery.WATCHED, acted_step=self.step, acted_segment=self.segment
        )
        await queries.update_alert(connection, waits)
        await self._note_once(connection, waits, WAITS, index, objection)

    async def _note_once(
        self, connection: AsyncConnection, alert: AlertRecord, kind: str, index: int, reason: str
    ) -> None:
        """Record why nothing is done, once, until something else happens to the alert."""
        last = await event_queries.last_event(connection, alert)
        if last is None or last.kind != kind or last.detail != _detail(alert, index, reason):
            await self._note(connection, alert, kind, index, reason)

    async def _note(
        self, connection: AsyncConnection, alert: AlertRecord, kind: str, index: int, reason: str
    ) -> None:
        await event_queries.append_event(
            connection,
            alert,
            kind,
            at=self.actor.clock.wall(),
            actor=POLICY,
            step=self.step,
            detail=_detail(alert, index, reason),
        )


def _detail(alert: AlertRecord, index: int, reason: str) -> dict[str, object]:
    ladder = alert.facts.ladder
    told: dict[str, object] = {
        "rung": index + 1,
        "of": len(ladder),
        "action": words_of(ladder[index]),
    }
    return told | ({"reason": reason} if reason else {})


def _why_not_now(alert: AlertRecord) -> str | None:
    """Why an open alert asks for nothing at this moment; None if it does. The verdict may come in
    any state."""
    if alert.acked_at is not None:
        return _ACKNOWLEDGED
    if alert.inhibited_by is not None:
        return "inhibited"
    return None if alert.state is AlertState.FIRING else alert.state.value
