"""An estimate of the service's clock, from its replies."""

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
