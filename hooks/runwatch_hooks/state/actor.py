"""Carries out commands at the boundary after a step, and produces their receipts.

Before a command has an effect, the allow-list, its expiry, its attempt and the journal of commands
already answered are checked: the trainer decides. Nothing here raises into the training loop but
what interrupts the program, such as Ctrl-C.
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, cast

import msgspec

from runwatch.commands import ACTION_KINDS, Command, CommandState, Receipt
from runwatch.frames import Event, Scalar
from runwatch.vocabulary import CommandId
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.ranks.agreement import Meeting
from runwatch_hooks.ranks.ballots import Standing
from runwatch_hooks.ranks.coordinator import Ended
from runwatch_hooks.signals import is_of_a_signal
from runwatch_hooks.state.checkpoint_manager import CheckpointKeeper, Save, checkpoint_to_resume
from runwatch_hooks.state.effects import Effect, Effects, LooksClosely
from runwatch_hooks.state.lr_scale import LrScale
from runwatch_hooks.state.outcomes import ActionError, Notes, Outcome, event_of
from runwatch_hooks.state.snapshots import PacedSnapshots, SnapshotRing
from runwatch_hooks.state.training_state import TrainingState

# The commands that this run has answered are part of every checkpoint, so that a trainer restarted
# from one knows what it had done by then. A rollback does not touch them: a command stays applied
# even if the step at which it was applied is undone.

_MAX_RECEIPTS: Final = 1024
"""A command expires long before this many others have been sent."""


def receipts_of(document: object) -> Sequence[Receipt]:
    """The receipts in `Journal.to_document`. Raises ValidationError."""
    return msgspec.convert(document, list[Receipt])


class Journal:
    """The newest receipts, by command id."""

    def __init__(self) -> None:
        self._receipts: OrderedDict[CommandId, Receipt] = OrderedDict()

    def __contains__(self, command_id: CommandId) -> bool:
        return command_id in self._receipts

    def __len__(self) -> int:
        return len(self._receipts)

    def find(self, command_id: CommandId) -> Receipt | None:
        return self._receipts.get(command_id)

    def add(self, receipt: Receipt) -> None:
        self._receipts[receipt.command_id] = receipt
        self._receipts.move_to_end(receipt.command_id)
        while len(self._receipts) > _MAX_RECEIPTS:
            self._receipts.popitem(last=False)

    def to_document(self) -> list[dict[str, object]]:
        return [msgspec.to_builtins(receipt) for receipt in self._receipts.values()]

    def merge(self, older: Sequence[Receipt]) -> None:
        """Add the receipts of an older journal; this one's take precedence."""
        for receipt in [*older, *self._receipts.values()]:
            self.add(receipt)


log = OwnLog(__name__)


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
        snapshot_every: int | None = None,
        rank: int = 0,
        detail: LooksClosely | None = None,
    ) -> None:
        unknown = sorted(set(allow) - set(ACTION_KINDS))
        if unknown:
            raise ValueError(f"allow: found {unknown[0]!r}, wanted some of {ACTION_KINDS}")
        self._state = state
        self._lr_scale = lr_scale
        self._checkpoints = checkpoints
        self._allow = frozenset(allow)
        # Without a rollback, nothing could ever use a snapshot.
        self._paced = PacedSnapshots(
            snapshots, lr_scale, every=snapshot_every, are_taken="rollback" in self._allow
        )
        self.pace: Final = self._paced.pace
        """How often snapshots are taken."""
        self._rank = rank
        self._journal = Journal()
        self._effects = Effects(state, snapshots, lr_scale, checkpoints, detail)

    @property
    def lr_scale(self) -> float:
        """The multiplier on the learning rate that is in force."""
        return self._lr_scale.scale

    def begin(self, next_step: int) -> None:
        """Before the first step: take a snapshot of the state from which the run starts."""
        self._paced.take(next_step - 1, now=0.0)

    def note_step(self, step: int, *, healthy: bool, now: float) -> Notes:
        """A step has ended: judge the saved states on probation, and take a snapshot when due.

        `healthy` means that loss and gradients were finite. A step that AMP skipped is healthy.
        """
        events = self._paced.note_step(step, healthy=healthy, now=now) + tuple(
            Event(step, "unwatched", now, {"what": notice})
            for notice in self._lr_scale.take_notices()
        )
        if self._checkpoints is None:
            return Notes(events=events)
        notes = self._report_written(step + 1, now)
        promoted = self._checkpoints.note_step(step, healthy=healthy)
        good = tuple(
            Event(step, "checkpoint_good", now, {"path": str(item.path), "of_step": item.step})
            for item in promoted
        )
        return Notes(notes.receipts, events + notes.events + good)

    def apply(self, command: Command, *, attempt: int, next_step: int, now: float) -> Outcome:
        """Carry out a command, or refuse it with a reason. Never raises; an id is applied at most
        once.

        `attempt` is the current one; `now` is the service's time in Unix seconds, as well as it is
        known here.
        """
        known = self._journal.find(command.id)
        if known is not None:
            return Outcome(msgspec.structs.replace(known, attempt=attempt))
        effect = self._refusal(command, attempt, now) or self._attempt_action(command, next_step)
        return self._outcome(command, effect, next_step, now)

    # With several ranks: each is asked, and then all carry it out at one boundary, or none does.

    def objection(self, command: Command) -> str:
        """Why this rank would never carry it out; empty if it might. Called by another thread."""
        if command.id in self._journal:
            return "it has been answered before"
        if command.action.kind not in self._allow:
            return self._not_allowed(command)
        return ""

    def prepare(self, command: Command, to_step: int | None = None) -> Standing:
        """Whether this rank can carry it out at this boundary. Changes nothing; never raises.

        With `to_step`, the state for a rollback to that step is made ready: see `Effects.prepare`.
        """
        self._lr_scale.settle()
        try:
            return self._effects.prepare(command.action, to_step)
        except Exception as error:  # a fault of the hook is a reason for all ranks to refuse
            if is_of_a_signal(error):
                raise
            log.exception("%s cannot be prepared", command.action.kind)
            return Standing(refusal=repr(error))

    def end(self, ended: Ended, *, next_step: int, now: float) -> Outcome:
        """Carry out what all ranks agreed on, or record that none of them will. Never raises."""
        command, verdict = ended.command, ended.verdict
        if verdict.is_go:
            effect = self._attempt_action(command, next_step, verdict.to_step)
        else:
            effect = Effect(verdict.state, {"error": verdict.refusal})
        self._effects.forget()
        return self._outcome(command, effect, next_step, now)

    def _outcome(self, command: Command, effect: Effect, next_step: int, now: float) -> Outcome:
        receipt = Receipt(
            command_id=command.id,
            attempt=command.attempt,
            rank=self._rank,
            state=effect.state,
            step=next_step,
            detail=effect.detail,
        )
        self._journal.add(receipt)
        log.info("%s: %s at step %d", command.action.kind, effect.state, next_step)
        events: tuple[Event, ...] = ()
        if effect.event_kind:
            events = (event_of(effect.event_kind, next_step, now, command, effect.detail),)
        return Outcome(
            receipt,
            events,
            rolled_back_to=effect.rolled_back_to,
            fault_step=effect.fault_step,
            stop=effect.stop,
            interrupt=effect.interrupt,
        )

    def resume(self, meeting: Meeting | None = None) -> int | None:
        """Load the newest sound checkpoint (`checkpoint_to_resume`).

        Returns the step to train next, or None without a checkpoint. Raises StateMismatchError,
        StoreError.
        """
        loaded = checkpoint_to_resume(self._checkpoints, meeting)
        if loaded is None or self._checkpoints is None:
            return None
        self._state.restore(loaded.tree, is_resumed=True)
        self.load_state_dict(cast("dict[str, object]", loaded.actor))
        self._checkpoints.go_on_from(loaded.checkpoint)
        return loaded.checkpoint.step + 1

    def close(self, *, next_step: int, now: float, timeout_s: float) -> Notes:
        """Wait for a checkpoint that is being written, and stop scaling learning rates."""
        self._lr_scale.close()
        if self._checkpoints is None:
            return Notes()
        if not self._checkpoints.close(timeout_s):
            log.warning("a checkpoint is still being written after %.0f s", timeout_s)
        return self._report_written(next_step, now)

    def state_dict(self) -> dict[str, object]:
        """Journal and LR scale; part of the hook's checkpoints, and for the user's own. Puts back
        learning rates that a failed step left scaled, so that the optimizer saved beside it holds
        the schedule's."""
        self._lr_scale.settle()
        return {"journal": self._journal.to_document(), "lr_scale": self._lr_scale.scale}

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        """Merge the saved journal into this one, and set the saved LR scale. Raises like
        `check_state_dict`, with nothing changed."""
        self.check_state_dict(state_dict)
        self._journal.merge(receipts_of(state_dict["journal"]))
        self._lr_scale.set(cast(float, state_dict["lr_scale"]))

    def check_state_dict(self, state_dict: Mapping[str, object]) -> None:
        """Raises KeyError, TypeError, ValueError or LrScaleError if it cannot be loaded."""
        receipts_of(state_dict["journal"])
        self._lr_scale.check(cast(float, state_dict["lr_scale"]))

    def _refusal(self, command: Command, attempt: int, now: float) -> Effect | None:
        if command.attempt != attempt:
            error = f"attempt: found {command.attempt}, wanted {attempt}, the one that runs"
            return Effect(CommandState.REJECTED, {"error": error})
        if not now <= command.expires_at:
            error = f"expires_at: found {command.expires_at}, and it is {now}"
            return Effect(CommandState.EXPIRED, {"error": error})
        if command.action.kind not in self._allow:
            return Effect(CommandState.REJECTED, {"error": self._not_allowed(command)})
        return None

    def _not_allowed(self, command: Command) -> str:
        allowed = ", ".join(sorted(self._allow)) or "nothing"
        return f"{command.action.kind}: the trainer allows {allowed}"

    def _attempt_action(
        self, command: Command, next_step: int, to_step: int | None = None
    ) -> Effect:
        self._lr_scale.settle()
        try:
            actor = self._contents(command, next_step)
            return self._effects.act(command, next_step, actor=actor, to_step=to_step)
        except ActionError as error:
            return Effect(CommandState.FAILED, {"error": str(error)})
        except Exception as error:  # a command must never end the training
            if is_of_a_signal(error):
                raise
            log.exception("%s failed", command.action.kind)
            return Effect(CommandState.FAILED, {"error": repr(error)})

    def _contents(self, command: Command, next_step: int) -> dict[str, object]:
        """The actor's state for a checkpoint that a command asked for."""
        # In it the command counts as applied: whoever loads the file finds it done.
        done = Receipt(command.id, command.attempt, self._rank, CommandState.APPLIED, next_step)
        actor = self.state_dict()
        actor["journal"] = [*self._journal.to_document(), msgspec.to_builtins(done)]
        return actor

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
        event = event_of("checkpoint", next_step, now, command, detail)
        accepted = None if command is None else self._journal.find(command.id)
        if accepted is None:
            return None, event
        state = CommandState.FAILED if checkpoint is None else CommandState.APPLIED
        receipt = msgspec.structs.replace(accepted, state=state, detail=detail)
        self._journal.add(receipt)
        return receipt, event
