"""How long steps take, without the time that evaluations and checkpoints take between them."""


class StepTimer:
    """Times are seconds of a monotonic clock, given by the caller."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._pauses: list[float] = []
        self._paused_s = 0.0

    def begin(self, now: float) -> None:
        """A step begins, and its time with it. Pauses that go on, as a phase around a whole loop
        does, are none of what was trained within them."""
        self._began = now
        self._paused_s = 0.0
        self._pauses = [now] * len(self._pauses)

    def lap(self, now: float) -> float | None:
        """The time of the step that ends now. None for the first: it began before we looked."""
        if self._began is None:
            return None
        return max(now - self._began - self._paused_s, 0.0)

    def pause(self, now: float) -> None:
        """Pauses may lie within one another."""
        self._pauses.append(now)

    def go_on(self, now: float) -> None:
        began = self._pauses.pop()
        if not self._pauses:
            self._paused_s += now - began
