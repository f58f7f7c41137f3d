"""Decides how much is read of each step, from the cost of earlier steps.

The cost of a step depends on what is read of it, and kinds of steps alternate. So the median cost
of each kind is kept (a garbage collection does not change it). The share of time that a rung takes
follows from how often each kind occurs on it, so that the shares of neighbouring rungs are known
before they are tried.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Final

from runwatch_hooks.governor.ladder import EVERYTHING, LADDER, Rung, Sampled
from runwatch_hooks.governor.meter import Meter

_DECIDES_EVERY: Final = 32
"""Steps between two decisions."""
_REMEMBERED: Final = 16
"""Number of costs kept for each kind of step."""
_STEPS_REMEMBERED: Final = 64
"""Number of step times kept, without the hook's cost."""
_EASE: Final = 0.75
"""Share of the budget. The previous rung is returned to only if it would have taken no more than
this for several decisions. The margin keeps noise from changing rungs back and forth."""
_CALM_DECISIONS: Final = 4


@dataclass(frozen=True, slots=True)
class Change:
    """A change of how much is read, from now on."""

    rung: Rung
    share: float
    """The share of a step's time that watching took before the change, 0 to 1."""

    def detail(self) -> dict[str, int | float]:
        """The detail of the event that reports it."""
        return {
            "sampling_interval": self.rung.gradients_every,
            "weights_interval": self.rung.weights_every,
            "hook_share": self.share,
        }


class Governor:
    """The governor of one process. Used by the training thread."""

    def __init__(self, max_overhead: float, clock: Callable[[], float] = time.thread_time) -> None:
        """`max_overhead` is the share of a step's time that watching may take, 0 to 1."""
        self.meter = Meter(clock)
        """Measures the hook's code that runs under it."""
        self.is_alarmed = False
        """While true, everything is read at every step."""
        self._max = max_overhead
        self._place = 0
        self._turn = 0
        self._costs: dict[Sampled, deque[float]] = {}
        self._times: deque[float] = deque(maxlen=_STEPS_REMEMBERED)
        self._open_cost_s = 0.0
        self._open_time_s = 0.0
        self._num_steps = 0
        self._num_calm = 0
        self._share: float | None = None

    def next(self) -> Sampled:
        """What to read of the step that begins."""
        turn, self._turn = self._turn, self._turn + 1
        return EVERYTHING if self.is_alarmed else self._rung.sampled(turn)

    def note(self, cost_s: float, time_s: float, sampled: Sampled | None) -> Change | None:
        """Record the cost of a row, and the time since the row before. Returns a change, if any.

        `sampled` is what was read; None if no optimizer stepped, in a loop that calls `watch.step`
        for each accumulated batch. Such rows are counted with the next step.
        """
        self._open_cost_s += cost_s
        self._open_time_s += time_s
        if sampled is None:
            return None
        self._costs.setdefault(sampled, deque(maxlen=_REMEMBERED)).append(self._open_cost_s)
        self._times.append(max(self._open_time_s - self._open_cost_s, 0.0))
        self._open_cost_s = self._open_time_s = 0.0
        self._num_steps += 1
        if self._num_steps % _DECIDES_EVERY:
            return None
        self._share = self._share_on(self._rung)
        return self._decide()

    def numbers(self) -> dict[str, float]:
        """`sampling_interval`, and `hook_share` once it is known."""
        numbers = {"sampling_interval": float(self._rung.gradients_every)}
        return numbers if self._share is None else {**numbers, "hook_share": self._share}

    @property
    def _rung(self) -> Rung:
        return LADDER[self._place]

    def _decide(self) -> Change | None:
        if self._share is None:
            return None
        if not self._share <= self._max:
            self._num_calm = 0
            return self._go_to(self._place + 1) if self._place + 1 < len(LADDER) else None
        before = self._share_on(LADDER[self._place - 1]) if self._place else None
        is_calm = before is not None and before <= _EASE * self._max
        self._num_calm = self._num_calm + 1 if is_calm else 0
        return self._go_to(self._place - 1) if self._num_calm == _CALM_DECISIONS else None

    def _go_to(self, place: int) -> Change:
        assert self._share is not None
        self._place, self._turn, self._num_calm = place, 0, 0
        return Change(self._rung, self._share)

    def _share_on(self, rung: Rung) -> float | None:
        """The hook's share of a step's time; None until each kind of step has occurred."""
        if not self._costs.keys() >= rung.shares.keys():
            return None
        cost_s = sum(share * median(self._costs[kind]) for kind, share in rung.shares.items())
        total_s = median(self._times) + cost_s
        return cost_s / total_s if total_s > 0.0 else None
