"""An estimate of the service's clock, from its replies, and how far this machine's is from it."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_NUM_SAMPLES: Final = 30
"""Five minutes of heartbeats: enough to include a fast reply, and few enough for clock drift."""
_DRIFT_S: Final = 1.0
"""More than two clocks drift apart in that time, also while one of them is being corrected: at 500
parts in a million, as fast as NTP slews, it is 0.15 s."""

_ERROR_S: Final = 5.0
"""A machine whose clock is set over the network is some milliseconds off, and a second or two if it
is set by hand. `runwatch doctor` mentions three."""


def running_s() -> float:
    """Seconds of a clock that is never set. It continues during system sleep where the platform has
    such a clock (Linux), and is `time.monotonic` elsewhere."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


@dataclass(frozen=True, slots=True, order=True)
class _Sample:
    round_trip_s: float
    ahead_s: float

    def agrees_with(self, other: "_Sample") -> bool:
        """Whether one clock may have given both. A reply was written somewhere on its round trip,
        so it tells the time to within half of that."""
        uncertain_s = (self.round_trip_s + other.round_trip_s) / 2
        return abs(self.ahead_s - other.ahead_s) <= uncertain_s + _DRIFT_S


@dataclass(slots=True)
class ServiceClock:
    """The service's time. This machine's wall clock may be set during the training, which must not
    make commands expire early or late. So it is used only until the first reply."""

    wall: Callable[[], float] = time.time
    running: Callable[[], float] = running_s
    _samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=_NUM_SAMPLES))
    _ahead_s: float | None = None
    """How far the service's clock is ahead of the running one."""
    _told_s: float = 0.0
    """The error of this machine's clock that was reported last."""

    def observe(self, *, service_time: float, sent_at: float, received_at: float) -> None:
        """A reply contained `service_time`; the other times are of the running clock. The reply
        with the shortest round trip gives the most exact estimate. One that contradicts it means
        that the service's clock was set: what it said before no longer counts."""
        middle = (sent_at + received_at) / 2
        sample = _Sample(max(received_at - sent_at, 0.0), service_time - middle)
        if self._samples and not sample.agrees_with(min(self._samples)):
            self._samples.clear()
        self._samples.append(sample)
        self._ahead_s = min(self._samples).ahead_s

    def now(self) -> float:
        return self.wall() if self._ahead_s is None else self.running() + self._ahead_s

    def take_error(self) -> float | None:
        """How many seconds this machine's wall clock is ahead of the service's (negative: behind),
        if that is worth a report: 5 s or more, surely, and 5 s away from what was reported."""
        if not self._samples:
            return None
        error_s = self.wall() - self.now()
        unsure_s = min(self._samples).round_trip_s / 2
        if abs(error_s) < _ERROR_S:
            self._told_s = 0.0
        if min(abs(error_s), abs(error_s - self._told_s)) < _ERROR_S + unsure_s:
            return None
        self._told_s = error_s
        return error_s
