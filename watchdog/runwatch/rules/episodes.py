"""What an alert is about: who is failing, how badly at the worst, and where it began."""

import math
from dataclasses import dataclass

_MOST_CLEARINGS = 8
"""So often an alert is told to be clear and to come back; from then on it flaps, and counts as
firing until it is over."""
_WORSE_BY = 0.2
"""A peak must have moved by so large a part before it is told again: what grows without end is then
told a few dozen times, and not at every step."""


@dataclass(frozen=True, slots=True)
class Culprits:
    """Who is failing, as an alert names them."""

    first: str | None = None
    worst: str | None = None
    layers: tuple[str, ...] = ()
    num_layers: int = 0
    origin: str = ""
    """What broke first, in words, where the rule can say it."""
    why: str = ""
    """What is known of the reason for that."""
    spread: str = ""
    """Which others broke, with it or after it."""
    named: str = ""
    """What events say of them, in words, where the rule judges a metric that only counts them."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The worst value that a rule saw since the onset."""

    value: float
    step: int
    layer: str | None = None
    """None where the rule looks at no layers."""


@dataclass(frozen=True, slots=True)
class Widest:
    """The most layers that failed at once, as they are named: worst first, and not all of many."""

    layers: tuple[str, ...] = ()
    num_layers: int = 0


@dataclass(frozen=True, slots=True)
class Episode:
    """What is remembered of an alert in addition to its state."""

    attempt: int
    segment: int
    """Of the onset."""
    culprits: Culprits
    value: float
    peak: Peak | None = None
    widest: Widest = Widest()
    told_peak: float | None = None
    """The peak, and how many layers it was at most, when the alert was last told."""
    told_layers: int = 0
    num_clearings: int = 0
    """How often the condition was over, and the alert not yet."""

    @property
    def is_flapping(self) -> bool:
        return self.num_clearings > _MOST_CLEARINGS

    @property
    def has_worsened(self) -> bool:
        """Whether it has become so much worse that what was told is no longer true."""
        if self.widest.num_layers > 1.5 * self.told_layers:
            return self.told_peak is not None
        if self.peak is None or self.told_peak is None or math.isnan(self.told_peak):
            return False
        moved = abs(self.peak.value - self.told_peak)
        return self.peak.value != self.told_peak and not moved <= _WORSE_BY * abs(self.told_peak)


def is_worse(value: float, than: float, *, downward: bool) -> bool:
    """Whether a value is beyond another in the direction of the alarm; NaN is beyond all."""
    if math.isnan(value):
        return not math.isnan(than)
    return value < than if downward else value > than
