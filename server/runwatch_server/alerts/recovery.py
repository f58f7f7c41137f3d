"""Whether a run recovered from an alert after the command that the alert brought about."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.alerts import AlertState
from runwatch.commands import CommandState
from runwatch.frames import Scalar
from runwatch.ladders import CURES
from runwatch.policy import ALREADY_ROLLED_BACK
from runwatch_server.alerts import event_queries, queries
from runwatch_server.alerts.records import AlertRecord, Recovery, Resolution
from runwatch_server.alerts.rungs import FIRST_RUNG
from runwatch_server.commands.records import CommandRecord

RECOVERY_STEPS: Final = 200
"""An alert that still fires so many steps after the command was applied did not recover:
several times what the built-in rules ask for before they call an alert resolved."""

WORSE_STEPS: Final = 50
"""What gets worse sooner after the command was on its way before it."""


async def note_command(
    connection: AsyncConnection,
    command: CommandRecord,
    state: CommandState,
    *,
    at: float,
    step: int | None,
    segment: int,
    detail: Mapping[str, Scalar],
    is_wish: bool,
) -> None:
    """Tell an alert what became of the command that it brought about. `segment` is the one in
    which the run goes on after it; `is_wish` says that people wanted what was not done undone."""
    if command.alert_id is None:
        return
    alert = await queries.find_alert(connection, command.alert_id)
    if alert is None:
        return
    await event_queries.append_event(
        connection,
        alert,
        f"command_{state}",
        at=at,
        actor="trainer" if step is not None else "service",
        step=step,
        detail={"command_id": command.id, "kind": command.kind, **detail},
    )
    if state is not CommandState.APPLIED:
        is_awaited = alert.state.is_open and alert.recovery is not Recovery.WATCHED
        if is_awaited and not is_wish and _was_to_help(command):
            undone = _not_applied(alert, segment, detail)
            await queries.update_alert(connection, undone)
        return
    if command.kind not in CURES:
        return
    acted_step = _next_step(step, detail)
    acted = replace(alert, acted_step=acted_step, acted_segment=segment)
    if alert.state.is_open:
        await queries.update_alert(connection, replace(acted, recovery=Recovery.WATCHED))
    elif alert.resolution is Resolution.RECOVERED:  # the healthy steps came before the receipt
        await queries.update_alert(connection, replace(acted, recovery=Recovery.RECOVERED))
        await event_queries.append_event(
            connection, alert, Recovery.RECOVERED, at=at, step=alert.resolved_step
        )


def _was_to_help(command: CommandRecord) -> bool:
    """A stop on a ladder is no cure, but something that is tried."""
    is_rung = command.action_index is not None and command.action_index >= FIRST_RUNG
    return is_rung or command.kind in CURES


def _not_applied(alert: AlertRecord, segment: int, detail: Mapping[str, Scalar]) -> AlertRecord:
    """The alert after a command that came to nothing. Another's rollback may help it as well: it
    is given its time."""
    if detail.get("reason") != ALREADY_ROLLED_BACK:
        return replace(alert, recovery=Recovery.NOT_APPLIED)
    return replace(
        alert,
        recovery=Recovery.WATCHED,
        acted_step=alert.onset_step,
        acted_segment=segment,
    )


def recovery_at(alert: AlertRecord, segment: int, last_step: int) -> Recovery | None:
    """What a watched alert's recovery is once the run has come to this step of this segment."""
    if alert.recovery is Recovery.NOT_APPLIED and alert.state is AlertState.FIRING:
        return Recovery.NOT_RECOVERED
    if alert.recovery is not Recovery.WATCHED:
        return alert.recovery
    if alert.state is AlertState.RESOLVED:
        return Recovery.RECOVERED
    if alert.state is AlertState.FIRING and _is_late(alert, segment, last_step):
        return Recovery.NOT_RECOVERED
    return Recovery.WATCHED


def _is_late(alert: AlertRecord, segment: int, last_step: int) -> bool:
    """Whether the run has gone on for long since the command. Steps that a rollback took back
    have high numbers too, and may be judged after it."""
    return has_come_to(alert, segment, last_step - RECOVERY_STEPS)


def has_come_to(alert: AlertRecord, segment: int, step: int) -> bool:
    """Whether a step of a segment was trained after the command that was to cure the alert."""
    if alert.acted_step is None or alert.acted_segment is None:
        return False
    return segment >= alert.acted_segment and step >= alert.acted_step


def _next_step(step: int | None, detail: Mapping[str, Scalar]) -> int | None:
    """The step that was trained first after the command: a rollback says where it went."""
    to_step = detail.get("to_step")
    return to_step + 1 if isinstance(to_step, int) else step
