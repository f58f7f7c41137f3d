"""Snapshots: training states of recent steps, kept in host memory for a rollback."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from runwatch_hooks.actions.captured import Captured
from runwatch_hooks.actions.probation import Probation
from runwatch_hooks.actions.training_state import TrainingState

MIN_SIZE = 3
"""One that is good, one on probation, and one being written."""


@dataclass(slots=True, eq=False)
class Snapshot:
    """The state after a step, and its probation."""

    probation: Probation
    captured: Captured
    is_lent: bool = False
    """Another thread reads it, so its buffers must not be reused."""

    @property
    def step(self) -> int:
        return self.probation.step

    @property
    def is_sound(self) -> bool:
        """Whether it has arrived on the host and is finite."""
        return self.captured.is_ready() and self.captured.is_finite


class SnapshotRing:
    """At most `size` snapshots. Buffers are allocated once and reused.

    The newest good one is never dropped. Nor is the oldest one on probation: if each new snapshot
    replaced it, none would be kept long enough to become good.
    """

    def __init__(self, state: TrainingState, *, size: int = MIN_SIZE, good_after: int = 10) -> None:
        if size < MIN_SIZE:
            raise ValueError(f"snapshots: found {size}, wanted at least {MIN_SIZE}")
        if good_after < 1:
            raise ValueError(f"good_after: found {good_after} steps, wanted at least 1")
        self._state = state
        self._size = size
        self.good_after = good_after
        self._snapshots: list[Snapshot] = []  # by step
        self._free: list[Captured] = []  # buffers to be written again

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(self._snapshots)

    def __len__(self) -> int:
        return len(self._snapshots)

    def take(self, step: int) -> Snapshot:
        """Save the current state, which is the one after `step`."""
        self._drop(lambda snapshot: snapshot.step >= step)
        while len(self._snapshots) >= self._size:
            self._give_up(self._least_useful())
        into = self._free.pop() if self._free else None
        probation = Probation(step, self.good_after)
        snapshot = Snapshot(probation, self._state.capture(into))
        self._snapshots.append(snapshot)
        return snapshot

    def note_step(self, step: int, *, healthy: bool) -> None:
        """Judge the snapshots on probation by a step that was trained."""
        for snapshot in self._snapshots:
            snapshot.probation.note(step, healthy=healthy)

    def newest_good(self, before_step: int | None = None) -> Snapshot | None:
        """The newest sound snapshot that is good before a step, as defined in `probation`."""
        return _last(self.all_good(before_step))

    def all_good(self, before_step: int | None) -> list[Snapshot]:
        return self._sound(lambda probation: probation.is_good_before(before_step))

    def all_healthy(self, before_step: int) -> list[Snapshot]:
        """The sound snapshots with only healthy steps between them and this step."""
        return self._sound(lambda probation: probation.was_healthy_until(before_step))

    def at_step(self, step: int) -> Snapshot | None:
        """The sound snapshot of exactly this step."""
        return _last(self._sound(lambda probation: probation.step == step))

    def lend_newest_good(self) -> Snapshot | None:
        """The newest good one, for another thread to read; its buffers are not reused."""
        snapshot = self.newest_good()
        if snapshot is not None:
            snapshot.is_lent = True
        return snapshot

    def rewind(self, to_step: int) -> None:
        """Drop the snapshots of steps that a rollback undid."""
        self._drop(lambda snapshot: snapshot.step > to_step)
        for snapshot in self._snapshots:
            snapshot.probation.rewind(to_step)

    def _sound(self, accepts: Callable[[Probation], bool]) -> list[Snapshot]:
        return [one for one in self._snapshots if accepts(one.probation) and one.is_sound]

    def _least_useful(self) -> Snapshot:
        """The snapshot to drop: one that will never be good, or else an older good one, or else the
        newest on probation."""
        newest_good = self.newest_good()
        for snapshot in self._snapshots:
            if snapshot.probation.is_suspect or not snapshot.captured.is_ready():
                continue
            if not snapshot.captured.is_finite:
                return snapshot
        for snapshot in self._snapshots:
            if snapshot.probation.is_suspect:
                return snapshot
        older_good = [
            one for one in self._snapshots if one.probation.is_good and one is not newest_good
        ]
        return older_good[0] if older_good else self._snapshots[-1]

    def _give_up(self, snapshot: Snapshot) -> None:
        self._snapshots.remove(snapshot)
        if not snapshot.is_lent:
            self._free.append(snapshot.captured)

    def _drop(self, holds: Callable[[Snapshot], bool]) -> None:
        for snapshot in [one for one in self._snapshots if holds(one)]:
            self._give_up(snapshot)


def _last(snapshots: list[Snapshot]) -> Snapshot | None:
    return snapshots[-1] if snapshots else None
