"""Chooses the state for a rollback: from snapshots in memory, or a newer good one on disk."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from runwatch.commands import Rollback
from runwatch_hooks.actions.checkpoint_files import CheckpointFacts
from runwatch_hooks.actions.errors import NoGoodStateError
from runwatch_hooks.actions.keeper import CheckpointKeeper
from runwatch_hooks.actions.snapshots import Snapshot, SnapshotRing
from runwatch_hooks.actions.trees import Mapped


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
