"""How often snapshots are taken: as often as their cost allows."""

from collections import deque
from statistics import median
from typing import Final

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
