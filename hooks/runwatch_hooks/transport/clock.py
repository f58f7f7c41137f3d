"""The service's clock, as far as its replies betray it."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_NUM_SAMPLES: Final = 30
"""Five minutes of heartbeats: long enough for a quick reply, short enough for a drifting clock."""


def running_s() -> float:
    """Seconds of a clock that nobody sets, and that goes on while the machine sleeps, where there
    is such a one."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


@dataclass(frozen=True, slots=True, order=True)
class _Sample:
    round_trip_s: float
    ahead_s: float


@dataclass(slots=True)
class ServiceClock:
    """The service's time. This machine's own clock may be set while it trains, which must make no
    order late or early: it is asked only until a reply told the service's."""

    wall: Callable[[], float] = time.time
    running: Callable[[], float] = running_s
    _samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=_NUM_SAMPLES))
    _ahead_s: float | None = None
    """How far the service's clock is ahead of the running one."""

    def observe(self, *, service_time: float, sent_at: float, received_at: float) -> None:
        """One reply that bore the service's time; ours by the running clock. The quickest is the
        most exact."""
        middle = (sent_at + received_at) / 2
        self._samples.append(_Sample(max(received_at - sent_at, 0.0), service_time - middle))
        self._ahead_s = min(self._samples).ahead_s

    def now(self) -> float:
        return self.wall() if self._ahead_s is None else self.running() + self._ahead_s
