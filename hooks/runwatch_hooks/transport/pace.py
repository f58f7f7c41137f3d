"""How long rows are collected before they are sent as one frame."""

from typing import Final

_STIR_S: Final = 10.0


class Pace:
    """A short interval while something happens, and a longer one during calm training.

    A frame of ten steps costs the service twice what a frame of one step does, not ten times
    (`benchmarks.frame_cost`), so calm steps are sent in larger frames.
    """

    def __init__(self, *, close_s: float, calm_s: float, now: float) -> None:
        """The first seconds count as eventful: whoever has just started a run is looking at it."""
        self._close_s = close_s
        self._calm_s = max(calm_s, close_s)
        self._stirred_until = now + _STIR_S

    def stir(self, now: float) -> None:
        """Something happened: use the short interval for the next seconds."""
        self._stirred_until = now + _STIR_S

    def interval_s(self, now: float) -> float:
        """Seconds from one frame to the next; `now` is a monotonic clock's time."""
        return self._close_s if now < self._stirred_until else self._calm_s
