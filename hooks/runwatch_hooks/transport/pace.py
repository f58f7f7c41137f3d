"""How long rows wait for each other before they travel together."""

from typing import Final

_STIR_S: Final = 10.0


class Pace:
    """Close behind each other where something happens; in bundles where nothing does.

    A frame of ten steps costs a service twice what a frame of one does, not ten times as much
    (`benchmarks.frame_cost`), so a run of thousands of calm steps is not sent step by step.
    """

    def __init__(self, *, close_s: float, calm_s: float, now: float) -> None:
        """The first seconds count as stirred: whoever has just started a run looks at it."""
        self._close_s = close_s
        self._calm_s = max(calm_s, close_s)
        self._stirred_until = now + _STIR_S

    def stir(self, now: float) -> None:
        """Something happened that somebody may be waiting to hear more of."""
        self._stirred_until = now + _STIR_S

    def interval_s(self, now: float) -> float:
        """Seconds from one frame to the next; `now` is of a clock that never goes back."""
        return self._close_s if now < self._stirred_until else self._calm_s
