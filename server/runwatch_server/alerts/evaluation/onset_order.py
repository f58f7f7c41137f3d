"""In which order the ranks of an attempt are judged where something broke: as it broke.

A NaN in the gradients of step s is in every rank's loss at step s + 1. Only rank 0's rows show the
gradients, and its trainer sends such a row later than the others send theirs, because it first asks
them. If another rank were judged before it, its alert would name the wrong step, propose a rollback
that leaves out the wrong batch, and people would be notified of one failure twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from runwatch.frames import Frame
from runwatch.nonfinite import is_absent
from runwatch.rules.nonfinite_rule import is_loss, is_of_evaluation
from runwatch_server.telemetry.committed_frames import CommittedFrame

Place = tuple[int, int]
"""(segment, step)"""

START: Final[Place] = (0, -1)
"""Before the first step of an attempt."""

ORDER_TIMEOUT_S: Final = 2.0
"""Longest wait of a broken row for rank 0's rows of the steps before it. Rank 0 keeps one back for
half a second, and its rows of a calm second are sent together."""


@dataclass(frozen=True, slots=True)
class Held:
    """A broken row of another rank than 0 that waits for its turn."""

    broken: Place
    since: float
    """When the wait began, on the monotonic clock."""

    def left_s(self, now: float) -> float:
        """Seconds until it is judged in any case."""
        return self.since + ORDER_TIMEOUT_S - now

    def has_turn(self, sound: Place, now: float) -> bool:
        """Whether it need not wait any longer; `sound` is how far rank 0 is known."""
        return follows(self.broken, sound) or self.left_s(now) <= 0.0


def follows(broken: Place, sound: Place) -> bool:
    """Whether rank 0 is known up to the step before the one at which another rank broke."""
    segment, step = broken
    return sound >= (segment, step - 1)


def end_of(held: CommittedFrame) -> Place:
    """The last step of a frame; START if it holds only events, which say nothing of their step."""
    frame = held.frame
    return (frame.segment, frame.last_step) if frame.num_steps else START


def first_broken(frame: Frame) -> Place | None:
    """The first step of a frame with a loss or gradients that are not finite; None if there is
    none."""
    broken_N = np.zeros(frame.num_steps, np.bool_)
    counts, losses = _columns_of(frame.metric_names)
    for column in counts:
        broken_N |= frame.metrics[:, column] > 0.0
    for column in losses:
        values_N = np.ascontiguousarray(frame.metrics[:, column])
        broken_N |= ~np.isfinite(values_N) & ~is_absent(values_N)
    if not broken_N.any():
        return None
    return frame.segment, frame.first_step + int(broken_N.argmax())


@lru_cache(maxsize=64)
def _columns_of(metric_names: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Columns of the counts of non-finite numbers, and of the losses of the training. The frames of
    a run have few different sets of metrics, and each frame is looked at."""
    counts = [column for column, name in enumerate(metric_names) if name == "nonfinite"]
    losses = [
        column
        for column, name in enumerate(metric_names)
        if name != "nonfinite" and is_loss(name) and not is_of_evaluation(name)
    ]
    return tuple(counts), tuple(losses)


def sound_until(judged: Place, waiting: Sequence[CommittedFrame]) -> Place:
    """The last step of rank 0 before which everything is known: the last one that it was judged at
    or, among its frames that wait to be judged, the last before the first that broke."""
    for held in waiting:
        broken = first_broken(held.frame)
        if broken is not None:
            segment, step = broken
            return max(judged, (segment, step - 1))
        judged = max(judged, end_of(held))
    return judged
