"""The service's clock, as far as its replies betray it."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

_NUM_SAMPLES: Final = 30
"""Five minutes of heartbeats: long enough for a quick reply, short enough for a drifting clock."""


@dataclass(frozen=True, slots=True, order=True)
class _Sample:
    round_trip_s: float
    offset_s: float


@dataclass(slots=True)
class ServiceClock:
    """How far the service's clock is ahead of ours, in seconds; 0 until a reply told it."""

    _samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=_NUM_SAMPLES))
    offset_s: float = 0.0

    def observe(self, *, service_time: float, sent_at: float, received_at: float) -> None:
        """One reply that bore the service's time. The quickest is the most exact."""
        middle = (sent_at + received_at) / 2
        self._samples.append(_Sample(max(received_at - sent_at, 0.0), service_time - middle))
        self.offset_s = min(self._samples).offset_s
