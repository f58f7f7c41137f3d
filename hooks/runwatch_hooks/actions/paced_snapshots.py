"""Takes snapshots at the steps where they are due, as often as their cost allows."""

import time
from typing import Final

from runwatch.frames import Event, Scalar
from runwatch_hooks.actions.lr_scale import LrScale
from runwatch_hooks.actions.outcomes import event_of
from runwatch_hooks.actions.pace import SnapshotPace
from runwatch_hooks.actions.snapshots import SnapshotRing
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.signals import is_of_a_signal

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
