"""How often the training state is captured: as often as costs little, and never more often."""

from typing import Final

DEFAULT_EVERY: Final = 50
"""Steps, at first and at least."""
MAX_EVERY: Final = 3200
MAX_SHARE: Final = 0.01
"""Of the time of a step. A capture copies the state: 12 ms for 21 MB (100 tensors), so that every
50 steps of 5 ms it would take a twentieth of the time."""
WARM_UP: Final = 3
"""Captures that make their buffers, and take ten times as long: no measure of the rest."""
_WEIGHT_OF_LAST: Final = 0.05
"""In the running mean of a step's time."""


class SnapshotPace:
    """Doubles the interval while captures cost more than their share, and halves it again."""

    def __init__(self, every: int | None = None) -> None:
        """`every` is the user's own, which stays; None: by what it costs."""
        if every is not None and every < 1:
            raise ValueError(f"snapshot_every: found {every}, wanted at least 1 step")
        self.every = every or DEFAULT_EVERY
        """Steps between captures."""
        self._is_given = every is not None
        self._num_captures = 0
        self._step_s: float | None = None
        self._capture_s = 0.0

    @property
    def step_s(self) -> float:
        """The mean time of a step, captures left out."""
        return self._step_s or 0.0

    @property
    def capture_s(self) -> float:
        """Of the newest capture."""
        return self._capture_s

    def note_step(self, seconds: float) -> None:
        """A step took so long, with no capture in it."""
        before = seconds if self._step_s is None else self._step_s
        self._step_s = before + _WEIGHT_OF_LAST * (seconds - before)

    def note_capture(self, seconds: float) -> bool:
        """A capture took so long; whether the interval is another from now on."""
        self._num_captures += 1
        self._capture_s = seconds
        if self._is_given or self._num_captures <= WARM_UP or not self._step_s:
            return False
        before, wanted = self.every, seconds / (MAX_SHARE * self._step_s)
        while self.every < min(wanted, MAX_EVERY):
            self.every *= 2
        while self.every > DEFAULT_EVERY and wanted < self.every / 4:
            self.every //= 2
        return self.every != before

    def follow(self, every: int) -> None:
        """Several ranks capture at the same steps: at the pace of the leader."""
        if not self._is_given:
            self.every = every
