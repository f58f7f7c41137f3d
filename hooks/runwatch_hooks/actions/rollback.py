"""Chooses the state that a run goes back to: memory first, disk where it knows better."""

from dataclasses import dataclass

from runwatch.commands import Rollback
from runwatch_hooks.actions.checkpoints import CheckpointFacts
from runwatch_hooks.actions.errors import NoGoodStateError
from runwatch_hooks.actions.keeper import CheckpointKeeper
from runwatch_hooks.actions.snapshots import Snapshot, SnapshotRing
from runwatch_hooks.actions.trees import Mapped


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A state to go back to."""

    step: int
    """It is the state after this step."""
    tree: Mapped
    source: str
    """`snapshot`, or the path of a checkpoint."""


def choose_target(
    action: Rollback, snapshots: SnapshotRing, checkpoints: CheckpointKeeper | None
) -> Target:
    """The newest good state before a step, or the one that a person chose.

    Raises NoGoodStateError where there is none.
    """
    if action.to_step is not None:
        return target_at(action.to_step, snapshots, checkpoints)
    before = action.before_step
    snapshot = snapshots.newest_good(before)
    older_than = -2 if snapshot is None else snapshot.step
    target = _newest_on_disk(before, older_than, snapshots.good_after, checkpoints)
    if target is not None:
        return target
    if snapshot is None and before is not None:
        snapshot = snapshots.newest_healthy(before)  # what makes it trusted: see `probation`
    if snapshot is None:
        held = ", ".join(str(item.step) for item in snapshots) or "none"
        raise NoGoodStateError(
            f"rollback: found no good state before step {before}; snapshots held: {held}"
        )
    return _of_snapshot(snapshot)


def _newest_on_disk(
    before: int | None, after: int, good_after: int, checkpoints: CheckpointKeeper | None
) -> Target | None:
    """A good checkpoint newer than what memory has, undamaged."""
    if checkpoints is None:
        return None

    loaded = checkpoints.load_newest(
        lambda facts: _is_good_before(facts, before, good_after) and facts.step > after
    )
    if loaded is None:
        return None
    return Target(loaded.checkpoint.step, loaded.tree, str(loaded.checkpoint.path))


def _is_good_before(facts: CheckpointFacts, before: int | None, good_after: int) -> bool:
    early = before is None or facts.step + good_after < before
    return facts.is_good and not facts.is_undone and early


def held_states(
    action: Rollback, snapshots: SnapshotRing, checkpoints: CheckpointKeeper | None
) -> tuple[tuple[int, ...], ...]:
    """The steps that `choose_target` would choose from, by trust: what several ranks compare.

    The good ones first, in memory and on disk; then also those with only healthy steps since.
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
    """Exactly the state after this step, good or not; but never one that is not finite.

    Raises NoGoodStateError.
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
