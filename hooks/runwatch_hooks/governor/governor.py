"""Decides how much is read of each step, by what the steps before have cost.

Steps cost differently by what is read of them, and the kinds alternate. So the usual cost of each
kind is kept (a median: a collection of garbage, or a layer that is named anew, moves none), and the
share that a rung takes follows from how often each kind occurs on it: those of the neighbours are
known before they are tried.
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
"""Steps."""
_REMEMBERED: Final = 16
"""Costs of each kind of step."""
_STEPS_REMEMBERED: Final = 64
"""Times of steps without us."""
_EASE: Final = 0.75
"""Of the budget: only where the rung before takes no more, and has not for some time, is it gone
back to. Between that and the whole budget nothing moves, so that noise does not."""
_CALM_DECISIONS: Final = 4


@dataclass(frozen=True, slots=True)
class Change:
    """From here on steps are read otherwise."""

    rung: Rung
    share: float
    """That watching took of a step before the change, 0 to 1."""

    def detail(self) -> dict[str, int | float]:
        """Of the event that tells it."""
        return {
            "sampling_interval": self.rung.gradients_every,
            "weights_interval": self.rung.weights_every,
            "hook_share": self.share,
        }


class Governor:
    """One process's. For the training thread."""

    def __init__(self, max_overhead: float, clock: Callable[[], float] = time.thread_time) -> None:
        """`max_overhead` is the share of a step's time that watching may take, 0 to 1."""
        self.meter = Meter(clock)
        """What watching costs is run under it."""
        self.is_alarmed = False
        """While it is set, everything is read of every step."""
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
        """What is to be read of the step that begins."""
        turn, self._turn = self._turn, self._turn + 1
        return EVERYTHING if self.is_alarmed else self._rung.sampled(turn)

    def note(self, cost_s: float, time_s: float, sampled: Sampled | None) -> Change | None:
        """What a row cost us, of the time from the row before; what follows from it.

        `sampled` is what was read, None where no optimizer stepped: a loop that closes a row for
        each batch that it accumulates has one step in several.
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
        """Of a step's time, ours included; None while a kind of step has not been met."""
        if not self._costs.keys() >= rung.shares.keys():
            return None
        cost_s = sum(share * median(self._costs[kind]) for kind, share in rung.shares.items())
        total_s = median(self._times) + cost_s
        return cost_s / total_s if total_s > 0.0 else None
