"""Turn the actions of a firing alert into commands, as far as the run's policy allows.

For use inside the transaction that records the alert: an alert and its commands are stored
together, and each action of an alert is ordered once, however often its frames are judged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.alerts import AlertState
from runwatch.commands import AnyAction, CommandState, LowerLr, Rollback
from runwatch.policy import (
    ALREADY_PROPOSED,
    ALREADY_ROLLED_BACK,
    Decision,
    PastAction,
    PolicyLimits,
    PolicyVerdict,
    decide,
)
from runwatch.vocabulary import CommandId, PolicyMode, Severity
from runwatch_server.alerts import event_queries, queries
from runwatch_server.alerts.actions.rungs import FIRST_RUNG
from runwatch_server.alerts.records import AlertRecord
from runwatch_server.clock import Clock
from runwatch_server.commands import queries as command_queries
from runwatch_server.commands.changes import (
    COMMAND_TTL_S,
    POLICY,
    PROPOSAL_TTL_S,
    is_undone,
    put,
)
from runwatch_server.commands.ids import OrderedIds
from runwatch_server.commands.lifecycle import DELIVERABLE
from runwatch_server.commands.records import Addressee, CommandRecord
from runwatch_server.commands.signing import Signer

INCIDENT_STEPS: Final = 64
"""Alerts whose onsets lie at most this many steps apart belong to one incident: a failure spreads
through a network within steps, and a rollback must go to before its first sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Orders the actions of one run's alerts, under the run's policy."""

    clock: Clock
    ids: OrderedIds
    signer: Signer
    addressee: Addressee
    mode: PolicyMode
    limits: PolicyLimits
    lr_scale: float
    """The LR scale that the trainer has last reported since the service started."""

    def can_act_on(self, alert: AlertRecord) -> bool:
        """Whether the attempt that the alert is about still trains."""
        return alert.attempt == self.addressee.attempt and not self.addressee.state.is_ended

    async def act(
        self,
        connection: AsyncConnection,
        alert: AlertRecord,
        actions: Sequence[AnyAction],
        *,
        step: int,
    ) -> bool:
        """Order, propose or suppress each action of an alert. Returns whether any command came of
        it."""
        if not self.can_act_on(alert):
            return False
        ordered = False
        for index, action in enumerate(actions):
            commands = await command_queries.list_commands(connection, alert.run_id)
            if any((past.alert_id, past.action_index) == (alert.id, index) for past in commands):
                continue
            objection = await self.take(
                connection, alert, action, index=index, step=step, segment=alert.segment
            )
            ordered |= objection is None
        return ordered

    async def take(
        self,
        connection: AsyncConnection,
        alert: AlertRecord,
        action: AnyAction,
        *,
        index: int,
        step: int,
        segment: int,
    ) -> str | None:
        """Order or propose one action in response to what happened in a segment. If neither is
        possible, return why; the alert's events record it too, except for rungs, whose ladder does.
        `index` is the action's place among all actions of the alert."""
        commands = await command_queries.list_commands(connection, alert.run_id)
        if isinstance(action, Rollback):
            action = await self._before_onset(connection, alert, action)
        now = self.clock.wall()
        decision = self._decide(action, commands, alert, step=step, now=now)
        acts = decision.verdict is PolicyVerdict.ACT
        objection = (
            _objection(alert, action, commands, segment, acts=acts)
            or _suppression(decision)
            or self._unsignable()
        )
        if objection is not None:
            if index < FIRST_RUNG:
                detail = {"action": msgspec.to_builtins(action), "reason": objection}
                await event_queries.append_event(
                    connection, alert, "suppressed", at=now, actor=POLICY, step=step, detail=detail
                )
            return objection
        record = _record(
            CommandId(self.ids.new()),
            alert,
            action,
            index=index,
            segment=segment,
            automatic=acts,
            after_id=_last_under_way(commands) if acts else None,
            now=now,
        )
        await put(connection, record, self.addressee, actor=POLICY, signer=self.signer)
        await event_queries.append_event(
            connection,
            alert,
            f"command_{record.state}",
            at=now,
            actor=POLICY,
            step=step,
            detail={"command_id": record.id, "kind": record.kind, "reason": decision.reason},
        )
        return None

    def _decide(
        self,
        action: AnyAction,
        commands: Sequence[CommandRecord],
        alert: AlertRecord,
        *,
        step: int,
        now: float,
    ) -> Decision:
        """The policy's decision, given what the run's commands have done so far."""
        return decide(
            action,
            mode=self.mode,
            allowed=self.addressee.allow,
            history=history_of(commands, self.mode, step),
            limits=self.limits,
            step=step,
            now=now,
            lr_scale=min(self.lr_scale, _scale_set(commands, alert.attempt)),
        )

    def _unsignable(self) -> str | None:
        """Why the trainer would not obey any command that is made here; None if it would."""
        key = self.addressee.signing_key
        return None if key is None or self.signer.holds(key) else "no_signing_key"

    async def _before_onset(
        self, connection: AsyncConnection, alert: AlertRecord, action: Rollback
    ) -> Rollback:
        """The rollback, changed to go to before the first sign of the alert's incident."""
        if action.before_step is not None or action.to_step is not None:
            return action
        onsets = [
            other.onset_step
            for other in await queries.list_open(connection, alert.run_id)
            if _is_same_incident(alert, other)
        ]
        return replace_before(action, min([alert.onset_step, *onsets]))


def _record(
    command_id: CommandId,
    alert: AlertRecord,
    action: AnyAction,
    *,
    index: int,
    segment: int,
    automatic: bool,
    after_id: CommandId | None,
    now: float,
) -> CommandRecord:
    """The command for an alert's action. An automatic one is queued, unless it has to wait for
    another to end."""
    is_queued = automatic and after_id is None
    return CommandRecord(
        run_id=alert.run_id,
        id=command_id,
        attempt=alert.attempt,
        segment=segment,
        action=action,
        state=CommandState.QUEUED if is_queued else CommandState.PROPOSED,
        reason=f"{alert.rule}: {alert.facts.summary}",
        requested_by=f"alert:{alert.id}",
        automatic=automatic,
        alert_id=alert.id,
        action_index=index,
        after_id=after_id,
        created_at=now,
        expires_at=now + (COMMAND_TTL_S if automatic else PROPOSAL_TTL_S),
    )


def history_of(commands: Sequence[CommandRecord], mode: PolicyMode, step: int) -> list[PastAction]:
    """The earlier actions of rules on a run: those that were applied and those still under way."""
    return [
        PastAction(
            kind=command.kind,
            step=command.ended_step if command.ended_step is not None else step,
            at=command.ended_at if command.ended_at is not None else command.created_at,
            is_open=not command.state.is_ended,
        )
        for command in commands
        if command.alert_id is not None
        and (command.state is CommandState.APPLIED or _is_open(command, mode))
    ]


def _scale_set(commands: Sequence[CommandRecord], attempt: int) -> float:
    """The LR scale that the attempt's commands have set. A service that has just started has heard
    of none from the trainer, and would otherwise raise a lowered learning rate."""
    applied = [
        (command.ended_at or command.created_at, command.action.scale)
        for command in commands
        if isinstance(command.action, LowerLr)
        and command.attempt == attempt
        and command.state is CommandState.APPLIED
    ]
    _, scale = max(applied, key=lambda one: one[0], default=(0.0, 1.0))
    return scale


def replace_before(action: Rollback, before_step: int) -> Rollback:
    return Rollback(before_step=max(before_step, 0), to_step=action.to_step)


def _is_open(command: CommandRecord, mode: PolicyMode) -> bool:
    """Whether the command may still be carried out. In `observe` mode, an action that was only
    reported never is, unless a person asks for it."""
    if command.state is CommandState.PROPOSED:
        return command.after_id is not None or mode is not PolicyMode.AUTO
    return command.state in DELIVERABLE


def _objection(
    alert: AlertRecord,
    action: AnyAction,
    commands: Sequence[CommandRecord],
    segment: int,
    *,
    acts: bool,
) -> str | None:
    """Why an action must not be taken whatever the policy says; None if nothing objects."""
    if is_undone(commands, alert.attempt, segment):
        return ALREADY_ROLLED_BACK
    if acts:
        return None
    is_proposed = any(
        command.kind == action.kind
        and command.attempt == alert.attempt
        and command.state is CommandState.PROPOSED
        and command.after_id is None
        for command in commands
    )
    return ALREADY_PROPOSED if is_proposed else None


def _suppression(decision: Decision) -> str | None:
    return decision.reason if decision.verdict is PolicyVerdict.SUPPRESS else None


def _last_under_way(commands: Sequence[CommandRecord]) -> CommandId | None:
    """The last of the automatic commands that are under way: the trainer has at most one at a time,
    the others wait for it."""
    for command in commands:  # newest first
        waits = command.state is CommandState.PROPOSED and command.after_id is not None
        if command.automatic and (command.state in DELIVERABLE or waits):
            return command.id
    return None


def _is_same_incident(alert: AlertRecord, other: AlertRecord) -> bool:
    """Whether both alerts are of one incident. A recovering alert counts too: a gradient spike is
    already over when the loss follows it."""
    return (
        (other.state is AlertState.PENDING or other.state.is_open)
        and other.severity is not Severity.INFO
        and (other.attempt, other.segment) == (alert.attempt, alert.segment)
        and other.onset_step >= alert.onset_step - INCIDENT_STEPS
    )
