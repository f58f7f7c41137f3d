"""Snapshots: training states of recent steps in host memory, taken as often as they may cost."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final

from runwatch.frames import Event, Scalar
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.signals import is_of_a_signal
from runwatch_hooks.state.lr_scale import LrScale
from runwatch_hooks.state.outcomes import event_of
from runwatch_hooks.state.probation import Probation
from runwatch_hooks.state.training_state import TrainingState
from runwatch_hooks.state.tree import Captured

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


DEFAULT_EVERY: Final = 50
"""Steps between two snapshots at first, and at least."""
MAX_EVERY: Final = 3200
MAX_SHARE: Final = 0.01
"""Limit on the share of training time. A capture copies the state: 12 ms for 21 MB (100 tensors),
which every 50 steps of 5 ms would be a twentieth of the time."""
WARM_UP: Final = 3
"""First captures, which are not measured: they allocate their buffers and take ten times as
long."""
_REMEMBERED: Final = 64
"""Steps whose times are remembered. Their median is used, because now and then a step has an
evaluation before it, which may take a thousand times as long."""


class SnapshotPace:
    """The interval between snapshots: doubled while captures cost more than their share, and halved
    again when they cost less."""

    def __init__(self, every: int | None = None) -> None:
        """`every` is a fixed interval given by the user; None: chosen by cost."""
        if every is not None and every < 1:
            raise ValueError(f"snapshot_every: found {every}, wanted at least 1 step")
        self.every = every or DEFAULT_EVERY
        """Steps between two captures."""
        self._is_given = every is not None
        self._num_captures = 0
        self._steps_s: deque[float] = deque(maxlen=_REMEMBERED)
        self._capture_s = 0.0

    @property
    def step_s(self) -> float:
        """The usual time of a step in seconds, without captures; 0 before the first."""
        return median(self._steps_s) if self._steps_s else 0.0

    @property
    def capture_s(self) -> float:
        """Seconds of the newest capture."""
        return self._capture_s

    def note_step(self, seconds: float) -> None:
        """A step took this long, without a capture."""
        self._steps_s.append(seconds)

    def note_capture(self, seconds: float) -> bool:
        """A capture took this long. Returns whether the interval has changed."""
        self._num_captures += 1
        self._capture_s = seconds
        step_s = self.step_s
        if self._is_given or self._num_captures <= WARM_UP or not step_s:
            return False
        before, wanted = self.every, seconds / (MAX_SHARE * step_s)
        while self.every < min(wanted, MAX_EVERY):
            self.every *= 2
        while self.every > DEFAULT_EVERY and wanted < self.every / 4:
            self.every //= 2
        return self.every != before

    def follow(self, every: int) -> None:
        """Use the leader's interval: all ranks must capture at the same steps."""
        if not self._is_given:
            self.every = every


log = OwnLog(__name__)

_TOLD_AT: Final = 2
"""Failures in a row. A single one may be for want of memory."""


class PacedSnapshots:
    """The snapshots of one process, taken on the training thread."""

    def __init__(
        self, ring: SnapshotRing, lr_scale: LrScale, *, every: int | None, are_taken: bool
    ) -> None:
        """`every` is a fixed interval in steps; None: chosen by cost. Unless `are_taken`, as where
        no rollback is allowed, nothing is captured."""
        self.pace = SnapshotPace(every)
        self._ring = ring
        self._lr_scale = lr_scale
        self._are_taken = are_taken
        self._noted_at: float | None = None
        self._num_failed = 0
        """Since the last snapshot that could be taken."""

    def note_step(self, step: int, *, healthy: bool, now: float) -> tuple[Event, ...]:
        """A step has ended: judge the snapshots on probation, and take one when due. Returns an
        event if its cost has changed the interval, or if no snapshot can be taken."""
        self._ring.note_step(step, healthy=healthy)
        if self._noted_at is not None:
            self.pace.note_step(time.perf_counter() - self._noted_at)
        is_due = healthy and (step + 1) % self.pace.every == 0
        changed = self.take(step, now) if is_due else ()
        self._noted_at = time.perf_counter()
        return changed

    def take(self, step: int, now: float) -> tuple[Event, ...]:
        """Take a snapshot of the state after a step. Returns like `note_step`."""
        if not self._are_taken:
            return ()
        self._lr_scale.settle()
        began_at = time.perf_counter()
        try:
            self._ring.take(step)
        except Exception as error:  # from a user's `state_dict`, or out of memory
            if is_of_a_signal(error):
                raise
            return self._note_failure(step, now, error)
        self._num_failed = 0
        if not self.pace.note_capture(time.perf_counter() - began_at):
            return ()
        detail: dict[str, Scalar] = {
            "every": self.pace.every,
            "capture_s": self.pace.capture_s,
            "step_s": self.pace.step_s,
        }
        return (event_of("snapshot_pace", step, now, None, detail),)

    def _note_failure(self, step: int, now: float, error: Exception) -> tuple[Event, ...]:
        """Logged once, and reported if the next one fails too: what cannot be copied now will not
        be later, and a rollback would find only what is older."""
        self._num_failed += 1
        if self._num_failed == 1:
            log.warning("no snapshot after step %d", step, exc_info=True)
        if self._num_failed != _TOLD_AT:
            return ()
        what = f"snapshots cannot be taken, so a rollback finds no newer state: {error!r}"
        return (event_of("unwatched", step, now, None, {"what": what}),)
