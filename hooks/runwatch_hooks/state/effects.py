"""What each action does to the training, and when it is impossible. The actor decides when."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from runwatch.commands import (
    AnyAction,
    Checkpoint,
    Command,
    CommandState,
    Detail,
    LowerLr,
    Rollback,
    Stop,
)
from runwatch.frames import Scalar
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.ranks.ballots import Standing
from runwatch_hooks.state.checkpoint_files import CheckpointFacts
from runwatch_hooks.state.checkpoint_manager import CheckpointKeeper
from runwatch_hooks.state.lr_scale import LrScale
from runwatch_hooks.state.outcomes import ActionError, CheckpointError, NoGoodStateError
from runwatch_hooks.state.snapshots import Snapshot, SnapshotRing
from runwatch_hooks.state.training_state import TrainingState
from runwatch_hooks.state.tree import Mapped


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A state to go back to."""

    step: int
    """The state is the one after this step."""
    tree: Mapped
    source: str
    """`snapshot`, or the path of a checkpoint."""


def choose_target(
    before: int | None,
    snapshots: SnapshotRing,
    checkpoints: CheckpointKeeper | None,
    unfit: Collection[int] = (),
) -> Target:
    """The newest good state before a step, except those of the steps in `unfit`.

    Raises NoGoodStateError if there is none.
    """
    snapshot = _newest(snapshots.all_good(before), unfit)
    held = -2 if snapshot is None else snapshot.step
    target = _newest_on_disk(
        lambda facts: (
            held < facts.step
            and facts.step not in unfit
            and _is_good_before(facts, before, snapshots.good_after)
        ),
        checkpoints,
    )
    if target is not None:
        return target
    if snapshot is None and before is not None:
        # why it can be trusted: see `probation`
        snapshot = _newest(snapshots.all_healthy(before), unfit)
    if snapshot is None:
        steps = ", ".join(str(item.step) for item in snapshots) or "none"
        raise NoGoodStateError(
            f"rollback: found no good state before step {before}; snapshots held: {steps}"
        )
    return _of_snapshot(snapshot)


def _newest(snapshots: Sequence[Snapshot], unfit: Collection[int]) -> Snapshot | None:
    return next((one for one in reversed(snapshots) if one.step not in unfit), None)


def _newest_on_disk(
    accepts: Callable[[CheckpointFacts], bool], checkpoints: CheckpointKeeper | None
) -> Target | None:
    """The newest accepted, undamaged checkpoint."""
    loaded = None if checkpoints is None else checkpoints.load_newest(accepts)
    if loaded is None:
        return None
    return Target(loaded.checkpoint.step, loaded.tree, str(loaded.checkpoint.path))


def _is_good_before(facts: CheckpointFacts, before: int | None, good_after: int) -> bool:
    early = before is None or facts.step + good_after < before
    return facts.is_good and not facts.is_undone and early


def held_states(
    action: Rollback, snapshots: SnapshotRing, checkpoints: CheckpointKeeper | None
) -> tuple[tuple[int, ...], ...]:
    """The steps that `choose_target` would choose from, for several ranks to compare.

    First the good ones, in memory and on disk; then those together with the ones that had only
    healthy steps since.
    """
    if action.to_step is not None:
        return (_steps_at(action.to_step, snapshots, checkpoints),)
    before = action.before_step
    good = {item.step for item in snapshots.all_good(before)}
    if checkpoints is not None:
        after = snapshots.good_after
        good.update(checkpoints.steps(lambda facts: _is_good_before(facts, before, after)))
    if before is None:
        return (tuple(sorted(good)),)
    healthy = good.union(item.step for item in snapshots.all_healthy(before))
    return (tuple(sorted(good)), tuple(sorted(healthy)))


def _steps_at(
    step: int, snapshots: SnapshotRing, checkpoints: CheckpointKeeper | None
) -> tuple[int, ...]:
    if snapshots.at_step(step) is not None:
        return (step,)
    on_disk = checkpoints is not None and checkpoints.steps(
        lambda facts: facts.step == step and not facts.is_undone
    )
    return (step,) if on_disk else ()


def target_at(step: int, snapshots: SnapshotRing, checkpoints: CheckpointKeeper | None) -> Target:
    """The state after exactly this step, good or not, but finite.

    Raises NoGoodStateError if there is none.
    """
    snapshot = snapshots.at_step(step)
    if snapshot is not None:
        return _of_snapshot(snapshot)
    if checkpoints is not None:
        loaded = checkpoints.load_newest(lambda facts: facts.step == step and not facts.is_undone)
        if loaded is not None:
            return Target(step, loaded.tree, str(loaded.checkpoint.path))
    held = ", ".join(str(item.step) for item in snapshots) or "none"
    raise NoGoodStateError(
        f"rollback: found no finite state after step {step}; snapshots held: {held}"
    )


def _of_snapshot(snapshot: Snapshot) -> Target:
    return Target(snapshot.step, snapshot.captured.tree, "snapshot")


log = OwnLog(__name__)

_CANNOT: Final = "the state after step %d cannot be gone back to: %s"


@dataclass(frozen=True, slots=True)
class Effect:
    """The result of carrying out an action."""

    state: CommandState
    detail: dict[str, Scalar] = field(default_factory=dict[str, Scalar])
    event_kind: str = ""
    """Kind of the event to report; empty: none besides the receipt."""
    rolled_back_to: int | None = None
    fault_step: int | None = None
    """The step at which the trouble began, before which a rollback went back."""
    stop: bool = False
    interrupt: BaseException | None = None
    """What interrupted a rollback, which was completed: to be raised once it is recorded."""


class LooksClosely(Protocol):
    """Measures histograms and activations on request."""

    def ask(self, next_step: int, num_steps: int) -> None: ...


class Effects:
    """The actions on one process's training state."""

    def __init__(
        self,
        state: TrainingState,
        snapshots: SnapshotRing,
        lr_scale: LrScale,
        checkpoints: CheckpointKeeper | None,
        detail: LooksClosely | None = None,
    ) -> None:
        """`detail` is None on ranks other than 0, where that action does nothing."""
        self._detail = detail
        self._state = state
        self._snapshots = snapshots
        self._lr_scale = lr_scale
        self._checkpoints = checkpoints
        self._ready: Target | None = None
        self._unfit: set[int] = set()

    def prepare(self, action: AnyAction, to_step: int | None = None) -> Standing:
        """Whether this rank can carry out an action now, together with all others. Changes nothing.

        With `to_step`, the state for a rollback to that step is read and checked first. It, and the
        steps of states that do not fit, are kept until `forget`.
        """
        try:
            match action:
                case Checkpoint():
                    self._writer().check_free()
                case LowerLr(scale=scale):
                    self._lr_scale.check(scale)
                case Rollback():
                    return self._stand_to_roll_back(action, to_step)
                case Detail() | Stop():
                    pass
        except ActionError as error:
            return Standing(refusal=str(error))
        return Standing()

    def forget(self) -> None:
        """The command has ended: drop what was made ready for it."""
        self._ready = None
        self._unfit.clear()

    def _stand_to_roll_back(self, action: Rollback, to_step: int | None) -> Standing:
        if to_step is not None:
            self._get_ready(to_step)
        held = held_states(action, self._snapshots, self._checkpoints)
        states = tuple(tuple(step for step in kind if step not in self._unfit) for kind in held)
        return Standing(states=states, ready=None if self._ready is None else self._ready.step)

    def _get_ready(self, to_step: int) -> None:
        self._ready = None  # frees the previous candidate: there may be memory for one only
        try:
            target = target_at(to_step, self._snapshots, self._checkpoints)
            self._state.check(target.tree)
        except ActionError as error:
            log.warning(_CANNOT, to_step, error)
            self._unfit.add(to_step)
        else:
            self._ready = target

    def act(
        self,
        command: Command,
        next_step: int,
        *,
        actor: Mapping[str, object],
        to_step: int | None = None,
    ) -> Effect:
        """Carry out a command. `actor` is the actor's state for a checkpoint; `to_step` is the
        state that all ranks agreed to go back to, and have ready. Raises ActionError."""
        match command.action:
            case Checkpoint():
                self._writer().begin(next_step - 1, self._state.capture, actor, command)
                return Effect(CommandState.ACCEPTED)
            case Detail(steps=steps):
                if self._detail is not None:
                    self._detail.ask(next_step, steps)
                return Effect(CommandState.APPLIED, {"steps": steps}, "detail")
            case LowerLr(scale=scale):
                before = self._lr_scale.scale
                self._lr_scale.set(scale)
                detail: dict[str, Scalar] = {"lr_scale": scale, "before": before}
                return Effect(CommandState.APPLIED, detail, "lr_scale")
            case Rollback() as action:
                return self._roll_back(action, next_step, to_step)
            case Stop():
                return Effect(CommandState.APPLIED, {"next_step": next_step}, stop=True)

    def _writer(self) -> CheckpointKeeper:
        if self._checkpoints is None:
            raise CheckpointError("checkpoint: the trainer was given no folder for checkpoints")
        return self._checkpoints

    def _choose(self, action: Rollback) -> Target:
        """The state that the action names, or else the newest good one that fits the live objects.
        Raises ActionError; if no state fits, the one of the newest."""
        if action.to_step is not None:
            return target_at(action.to_step, self._snapshots, self._checkpoints)
        unfit: dict[int, ActionError] = {}
        while True:
            try:
                target = choose_target(
                    action.before_step, self._snapshots, self._checkpoints, unfit
                )
            except NoGoodStateError as error:
                raise next(iter(unfit.values()), error) from None
            try:
                self._state.check(target.tree)
            except ActionError as error:
                log.warning(_CANNOT, target.step, error)
                unfit[target.step] = error
            else:
                return target

    def _roll_back(self, action: Rollback, next_step: int, to_step: int | None) -> Effect:
        """Go back. The LR scale is not rolled back: a cut made after the capture was made because
        of the trouble that the run goes back to avoid."""
        if to_step is None:  # a single rank chooses by itself
            target = self._choose(action)
        elif self._ready is not None and self._ready.step == to_step:
            target = self._ready
        else:
            raise NoGoodStateError(f"rollback: the state after step {to_step} is not ready")
        restored = self._state.restore_whole(target.tree, is_agreed=to_step is not None)
        self._snapshots.rewind(target.step)
        if self._checkpoints is not None:
            self._checkpoints.rewind(target.step)
        detail: dict[str, Scalar] = {
            "to_step": target.step,
            "from_step": next_step - 1,
            "source": target.source,
            "lr_scale": self._lr_scale.scale,
        }
        if restored.refused:
            detail["left_as_it_was"] = ", ".join(restored.refused)
        return Effect(
            CommandState.APPLIED,
            detail,
            "rollback",
            rolled_back_to=target.step + 1,
            fault_step=action.before_step,
            interrupt=restored.interrupt,
        )
