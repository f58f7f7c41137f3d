"""Does what a command asks, at a step's boundary, and says what came of it.

The trainer's last word: the allow-list, the expiry, the attempt and the journal stand between a
command and its effect. Nothing here raises into the training loop.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import cast

import msgspec

from runwatch.commands import (
    ACTION_KINDS,
    Checkpoint,
    Command,
    CommandState,
    LowerLr,
    Receipt,
    Rollback,
    Stop,
)
from runwatch.frames import Event, Scalar
from runwatch_hooks.actions.errors import ActionError, CheckpointError
from runwatch_hooks.actions.journal import Journal
from runwatch_hooks.actions.keeper import CheckpointKeeper, Save
from runwatch_hooks.actions.lr_scale import LrScale
from runwatch_hooks.actions.rollback import choose_target
from runwatch_hooks.actions.snapshots import SnapshotRing
from runwatch_hooks.actions.training_state import TrainingState

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command came to, and what the watch must do about it."""

    receipt: Receipt
    events: tuple[Event, ...] = ()
    rolled_back_to: int | None = None
    """The number of the step to be trained next; the segment grows by one."""
    stop: bool = False


@dataclass(frozen=True, slots=True)
class _Effect:
    """What carrying out an action came to."""

    state: CommandState
    detail: dict[str, Scalar] = field(default_factory=dict[str, Scalar])
    event_kind: str = ""
    """Empty where there is nothing to tell beside the receipt."""
    rolled_back_to: int | None = None
    stop: bool = False


@dataclass(frozen=True, slots=True)
class Notes:
    """What came up at a boundary without a command: checkpoints that are written, or proved."""

    receipts: tuple[Receipt, ...] = ()
    events: tuple[Event, ...] = ()


class Actor:
    """Applies commands to one process's training state.

    At each boundary, on the training thread: first `note_step` with the step that just ended,
    then `apply` for each command, until one rolls back.
    """

    def __init__(
        self,
        state: TrainingState,
        snapshots: SnapshotRing,
        lr_scale: LrScale,
        *,
        checkpoints: CheckpointKeeper | None = None,
        allow: Collection[str] = ("checkpoint",),
        snapshot_every: int = 10,
        rank: int = 0,
    ) -> None:
        unknown = sorted(set(allow) - set(ACTION_KINDS))
        if unknown:
            raise ValueError(f"allow: found {unknown[0]!r}, wanted some of {ACTION_KINDS}")
        if snapshot_every < 1:
            raise ValueError(f"snapshot_every: found {snapshot_every}, wanted at least 1 step")
        self._state = state
        self._snapshots = snapshots
        self._lr_scale = lr_scale
        self._checkpoints = checkpoints
        self._allow = frozenset(allow)
        self._snapshot_every = snapshot_every
        self._rank = rank
        self._journal = Journal()

    @property
    def lr_scale(self) -> float:
        """What is in force."""
        return self._lr_scale.scale

    def begin(self, next_step: int) -> None:
        """Before the first step: keeps the state from which the run sets out."""
        self._take_snapshot(next_step - 1)

    def note_step(self, step: int, *, healthy: bool, now: float) -> Notes:
        """Judges what is on probation by the step that ended, and keeps its state when due.

        Healthy means: loss and gradients were finite. A step that AMP skipped is healthy.
        """
        self._snapshots.note_step(step, healthy=healthy)
        if healthy and (step + 1) % self._snapshot_every == 0:
            self._take_snapshot(step)
        if self._checkpoints is None:
            return Notes()
        notes = self._report_written(step + 1, now)
        promoted = self._checkpoints.note_step(step, healthy=healthy)
        good = tuple(
            Event(step, "checkpoint_good", now, {"path": str(item.path), "of_step": item.step})
            for item in promoted
        )
        return Notes(notes.receipts, notes.events + good)

    def apply(self, command: Command, *, attempt: int, next_step: int, now: float) -> Outcome:
        """Obeys, or says why not. Never raises; applies an id at most once.

        `attempt` is the one that runs; `now` is the service's time as well as it is known.
        """
        known = self._journal.find(command.id)
        if known is not None:
            return Outcome(msgspec.structs.replace(known, attempt=attempt))
        effect = self._refusal(command, attempt, now) or self._attempt_action(command, next_step)
        receipt = Receipt(
            command_id=command.id,
            attempt=attempt,
            rank=self._rank,
            state=effect.state,
            step=next_step,
            detail=effect.detail,
        )
        self._journal.add(receipt)
        log.info("%s: %s at step %d", command.action.kind, effect.state, next_step)
        events: tuple[Event, ...] = ()
        if effect.event_kind:
            events = (_event(effect.event_kind, next_step, now, command, effect.detail),)
        return Outcome(receipt, events, effect.rolled_back_to, effect.stop)

    def resume(self) -> int | None:
        """Puts the newest checkpoint on disk that nothing speaks against into the objects.

        Returns the number of the step to be trained next, or None where there is none. One still
        on probation will do here, unlike for a rollback: the last one of a run that was stopped
        in order never got the steps to prove itself. Raises StateMismatchError.
        """
        if self._checkpoints is None:
            return None
        loaded = self._checkpoints.load_newest(
            lambda facts: not facts.is_suspect and not facts.is_undone
        )
        if loaded is None:
            return None
        self._state.restore(loaded.tree)
        self.load_state_dict(cast("dict[str, object]", loaded.actor))
        self._checkpoints.watch_over(loaded.checkpoint)
        return loaded.checkpoint.step + 1

    def close(self, *, next_step: int, now: float, timeout_s: float) -> Notes:
        """Waits for a checkpoint that is being written, and scales no more."""
        self._lr_scale.close()
        if self._checkpoints is None:
            return Notes()
        if not self._checkpoints.drain(timeout_s):
            log.warning("a checkpoint is still being written after %.0f s", timeout_s)
        return self._report_written(next_step, now)

    def state_dict(self) -> dict[str, object]:
        """For the user's own checkpoints; the actor's contain it."""
        return {"journal": self._journal.to_document(), "lr_scale": self._lr_scale.scale}

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        """Adds to what is known already; the LR scale is the loaded one."""
        self._journal.merge(state_dict["journal"])
        self._lr_scale.set(cast(float, state_dict["lr_scale"]))

    def _refusal(self, command: Command, attempt: int, now: float) -> _Effect | None:
        if command.attempt != attempt:
            error = f"attempt: found {command.attempt}, wanted {attempt}, the one that runs"
            return _Effect(CommandState.REJECTED, {"error": error})
        if not now <= command.expires_at:
            error = f"expires_at: found {command.expires_at}, and it is {now}"
            return _Effect(CommandState.EXPIRED, {"error": error})
        if command.action.kind not in self._allow:
            allowed = ", ".join(sorted(self._allow)) or "nothing"
            error = f"{command.action.kind}: the trainer allows {allowed}"
            return _Effect(CommandState.REJECTED, {"error": error})
        return None

    def _attempt_action(self, command: Command, next_step: int) -> _Effect:
        self._lr_scale.settle()
        try:
            return self._act(command, next_step)
        except ActionError as error:
            return _Effect(CommandState.FAILED, {"error": str(error)})
        except Exception as error:  # a command must never end the training
            log.exception("%s failed", command.action.kind)
            return _Effect(CommandState.FAILED, {"error": repr(error)})

    def _act(self, command: Command, next_step: int) -> _Effect:
        match command.action:
            case Checkpoint():
                return self._begin_checkpoint(command, next_step)
            case LowerLr(scale=scale):
                before = self._lr_scale.scale
                self._lr_scale.set(scale)
                detail: dict[str, Scalar] = {"lr_scale": scale, "before": before}
                return _Effect(CommandState.APPLIED, detail, "lr_scale")
            case Rollback() as action:
                return self._roll_back(action, next_step)
            case Stop():
                return _Effect(CommandState.APPLIED, {"next_step": next_step}, stop=True)

    def _begin_checkpoint(self, command: Command, next_step: int) -> _Effect:
        if self._checkpoints is None:
            raise CheckpointError("checkpoint: the trainer was given no folder for checkpoints")
        # In the file the command counts as applied: whoever reads it there finds it done.
        done = Receipt(command.id, command.attempt, self._rank, CommandState.APPLIED, next_step)
        actor = self.state_dict()
        actor["journal"] = [*self._journal.to_document(), msgspec.to_builtins(done)]
        self._checkpoints.begin(next_step - 1, self._state.capture, actor, command)
        return _Effect(CommandState.ACCEPTED)

    def _roll_back(self, action: Rollback, next_step: int) -> _Effect:
        """The LR scale stays what commands made it: a cut that was made after the state was
        captured answers the very trouble that the run goes back to avoid."""
        target = choose_target(action, self._snapshots, self._checkpoints)
        self._state.restore(target.tree)
        self._snapshots.rewind(target.step)
        if self._checkpoints is not None:
            self._checkpoints.rewind(target.step)
        detail: dict[str, Scalar] = {
            "to_step": target.step,
            "from_step": next_step - 1,
            "source": target.source,
            "lr_scale": self._lr_scale.scale,
        }
        return _Effect(CommandState.APPLIED, detail, "rollback", rolled_back_to=target.step + 1)

    def _take_snapshot(self, step: int) -> None:
        if "rollback" not in self._allow:  # nobody could ever ask for it
            return
        self._lr_scale.settle()
        try:
            self._snapshots.take(step)
        except Exception:  # of the user's own state_dict(), or memory is full
            log.warning("no snapshot after step %d", step, exc_info=True)

    def _report_written(self, next_step: int, now: float) -> Notes:
        saves = self._checkpoints.written() if self._checkpoints is not None else []
        reports = [self._report(save, next_step, now) for save in saves]
        receipts = tuple(receipt for receipt, _ in reports if receipt is not None)
        return Notes(receipts, tuple(event for _, event in reports))

    def _report(self, save: Save, next_step: int, now: float) -> tuple[Receipt | None, Event]:
        command, checkpoint = save.command, save.checkpoint
        detail: dict[str, Scalar] = {"of_step": save.probation.step}
        if checkpoint is not None:
            detail |= {"path": str(checkpoint.path), "finite": checkpoint.facts.is_finite}
        else:
            detail["error"] = str(save.error)
        event = _event("checkpoint", next_step, now, command, detail)
        accepted = None if command is None else self._journal.find(command.id)
        if accepted is None:
            return None, event
        state = CommandState.FAILED if checkpoint is None else CommandState.APPLIED
        receipt = msgspec.structs.replace(accepted, state=state, detail=detail)
        self._journal.add(receipt)
        return receipt, event


def _event(
    kind: str, step: int, now: float, command: Command | None, detail: dict[str, Scalar]
) -> Event:
    told: dict[str, Scalar | list[str]] = {**detail}
    if command is not None:
        told |= {"command_id": command.id, "reason": command.reason}
    return Event(step, kind, now, told)
