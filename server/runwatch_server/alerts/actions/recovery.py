"""Decides whether a run recovered after a command that an alert caused."""

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
from runwatch_server.alerts.actions.rungs import FIRST_RUNG
from runwatch_server.alerts.records import AlertRecord, Recovery, Resolution
from runwatch_server.commands.records import CommandRecord

RECOVERY_STEPS: Final = 200
"""An alert that still fires this many steps after the command was applied did not recover: several
times what the built-in rules require before they resolve an alert."""

WORSE_STEPS: Final = 50
"""If the run gets worse sooner than this many steps after the command, it was already getting worse
before it."""

_VERDICTS: Final[Mapping[Resolution | None, Recovery]] = {
    Resolution.RECOVERED: Recovery.RECOVERED,
    Resolution.SETTLED_WORSE: Recovery.NOT_RECOVERED,
}


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
    """Record on an alert what became of a command that it caused. `segment` is the one in which
    the run continues afterwards; `is_wish` says that people wanted the command not to be carried
    out."""
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
    elif alert.resolution in _VERDICTS:  # it ended before the receipt came
        recovery = _VERDICTS[alert.resolution]
        await queries.update_alert(connection, replace(acted, recovery=recovery))
        await event_queries.append_event(
            connection, alert, recovery, at=at, step=alert.resolved_step
        )


def _was_to_help(command: CommandRecord) -> bool:
    """Whether the command was to help. A stop on a ladder cures nothing, but counts as something
    tried."""
    is_rung = command.action_index is not None and command.action_index >= FIRST_RUNG
    return is_rung or command.kind in CURES


def _not_applied(alert: AlertRecord, segment: int, detail: Mapping[str, Scalar]) -> AlertRecord:
    """The alert after a command that was not applied. It still gets its time to recover, since a
    rollback of another alert may help it too."""
    if detail.get("reason") != ALREADY_ROLLED_BACK:
        return replace(alert, recovery=Recovery.NOT_APPLIED)
    return replace(
        alert,
        recovery=Recovery.WATCHED,
        acted_step=alert.onset_step,
        acted_segment=segment,
    )


def recovery_at(alert: AlertRecord, segment: int, last_step: int) -> Recovery | None:
    """The recovery of a watched alert once the run has reached this step of this segment."""
    if alert.recovery is Recovery.NOT_APPLIED and alert.state is AlertState.FIRING:
        return Recovery.NOT_RECOVERED
    if alert.recovery is not Recovery.WATCHED:
        return alert.recovery
    if alert.state is AlertState.RESOLVED:
        return _VERDICTS.get(alert.resolution, Recovery.RECOVERED)
    if alert.state is AlertState.FIRING and _is_late(alert, segment, last_step):
        return Recovery.NOT_RECOVERED
    return Recovery.WATCHED


def _is_late(alert: AlertRecord, segment: int, last_step: int) -> bool:
    """Whether the run has gone on for long since the command. Steps that a rollback undid have high
    numbers too, and may be judged after it."""
    return has_come_to(alert, segment, last_step - RECOVERY_STEPS)


def has_come_to(alert: AlertRecord, segment: int, step: int) -> bool:
    """Whether a step of a segment was trained after the command that was to cure the alert."""
    if alert.acted_step is None or alert.acted_segment is None:
        return False
    return segment >= alert.acted_segment and step >= alert.acted_step


def _next_step(step: int | None, detail: Mapping[str, Scalar]) -> int | None:
    """The first step trained after the command; a rollback reports where it went."""
    to_step = detail.get("to_step")
    return to_step + 1 if isinstance(to_step, int) else step
