"""Measures the time of a step, without evaluations and checkpoints."""


class StepTimer:
    """A stopwatch with nested pauses. `now` is a monotonic clock's time in seconds."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._pauses: list[float] = []
        self._paused_s = 0.0

    def begin(self, now: float) -> None:
        """A step begins. A pause that is still open, such as a `phase` block around a whole loop,
        counts from here on, and does not swallow the steps inside it."""
        self._began = now
        self._paused_s = 0.0
        self._pauses = [now] * len(self._pauses)

    def lap(self, now: float) -> float | None:
        """Seconds of the step that ends now. None for the first, whose beginning is not known."""
        if self._began is None:
            return None
        return max(now - self._began - self._paused_s, 0.0)

    def pause(self, now: float) -> None:
        """Begin a pause; pauses may be nested."""
        self._pauses.append(now)

    def go_on(self, now: float) -> None:
        began = self._pauses.pop()
        if not self._pauses:
            self._paused_s += now - began
