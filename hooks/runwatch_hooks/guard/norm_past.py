"""An optimizer's gradient norms of late, and whether the next lies far outside of them.

Everything is a tensor on the device where the norms are, so that nobody waits for an answer; the
host knows only how often it has asked.

Distances are those of logarithms: what counts is by how much a norm was multiplied. Outside is
what lies further above the median of the last 128 norms than 8 robust deviations (the median
distance from the median, times 1.4826, which for a normal distribution is its standard deviation),
and at least by a factor of ten. Of 28 healthy published logs, 31 550 steps, none has such a step;
of six with an incident five have. With six deviations and a factor of four some of them had.

A norm that was outside is kept out of the past, or the past would follow it. At most 8 of the last
128 are; the ninth is taken for a new level: it passes, and the past is learned anew from it on.
So a training whose gradients have grown for good loses eight steps and no more.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, cast

import torch
from msgspec import Meta, convert
from torch import Tensor

from runwatch_hooks.measuring.host_memory import to_device

WINDOW: Final = 128
"""Norms remembered: enough for a steady median, few enough to follow a schedule."""
WARM_UP: Final = 64
"""Norms to be known before one is judged; at first they change from step to step as they please."""
MOST_GUARDED: Final = 8
_DEVIATIONS: Final = 8 * 1.4826
_LEAST_DISTANCE: Final = 2.3
"""A factor of 9.97: no quotient of two rounded norms lies upon it, where ranks could differ."""
_UNKNOWN: Final = torch.inf
"""In the place of a norm that is yet to come."""
_GUARDED: Final = torch.nan
"""In the place of a norm that was outside."""


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """About one step; both are 0-dimensional float32, 1.0 where it is so."""

    is_outlier: Tensor
    has_relearned: Tensor
    """A ninth outlier: it passes, and the past is learned anew."""


class NormPast:
    """Of one optimizer."""

    def __init__(self) -> None:
        self._levels = torch.full((WINDOW,), _UNKNOWN, dtype=torch.float32, device="cpu")
        """(W,) logarithms of norms, each in its step's place."""
        self._num_judged = 0

    def judge(self, norm: Tensor, is_bad: Tensor) -> Verdict:
        """Whether a step of this norm is an outlier. Both are 0-dimensional, on one device.

        A step that is bad already, since its gradients are not finite, says nothing about the past
        and uses up nothing; nor does one whose norm is 0.
        """
        levels = to_device(self._levels, norm.device)
        # Eight bits are enough, and the last one of a sum that was added in another order (by
        # another processor, on another rank) decides nothing.
        level = norm.bfloat16().float().log()
        is_judged = (is_bad == 0.0) & (level > -torch.inf)  # not so of NaN
        ordered = levels.sort().values  # NaN comes last, and infinity before it
        num_known = levels.isfinite().sum()
        median = _middle(ordered, num_known)
        spread = _middle((ordered - median).abs().sort().values, num_known)
        limit = median + (spread * _DEVIATIONS).clamp(min=_LEAST_DISTANCE)
        is_outside = is_judged & (num_known >= WARM_UP) & ~(level <= limit)
        is_lasting = is_outside & (levels.isnan().sum() >= MOST_GUARDED)
        is_outlier = is_outside & ~is_lasting
        place = self._num_judged % WINDOW
        kept = torch.where(is_judged, level, levels[place]).masked_fill(is_outlier, _GUARDED)
        levels = levels.masked_fill(is_lasting, _UNKNOWN)
        levels[place] = kept
        self._levels = levels
        self._num_judged += 1
        return Verdict(is_outlier.float(), is_lasting.float())

    def state_dict(self) -> dict[str, object]:
        """The levels are on their device; they are never written to again."""
        return {"num_judged": self._num_judged, "levels": self._levels}

    def plain_state(self) -> dict[str, object]:
        """The same in what strict JSON has too, which knows no infinity and no NaN: a level that
        is none of a norm is null, and `guarded` has the places of those that were outside. Waits
        for the device."""
        levels = cast("list[float]", self._levels.tolist())
        return {
            "num_judged": self._num_judged,
            "levels": [level if math.isfinite(level) else None for level in levels],
            "guarded": [place for place, level in enumerate(levels) if math.isnan(level)],
        }

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        """Either kind, also a list of levels with infinities and NaN as they are. Raises KeyError
        and ValueError, and takes nothing then."""
        num_judged = convert(state_dict["num_judged"], int)
        levels = state_dict["levels"]
        if not isinstance(levels, Tensor):
            levels = _levels_of(levels, state_dict.get("guarded", ()))
        if levels.shape != (WINDOW,):
            raise ValueError(f"levels: found {levels.numel()}, wanted {WINDOW}")
        self._num_judged = num_judged
        self._levels = levels.clone()


def _levels_of(plain: object, guarded: object) -> Tensor:
    known = [_UNKNOWN if one is None else one for one in convert(plain, list[float | None])]
    for place in convert(guarded, list[Annotated[int, Meta(ge=0, lt=len(known))]]):
        known[place] = _GUARDED
    return torch.tensor(known, dtype=torch.float32, device="cpu")


def _middle(ordered: Tensor, num_known: Tensor) -> Tensor:
    """The median (of two, the lower) of the first `num_known` elements."""
    place = ((num_known - 1) // 2).clamp(min=0)
    return ordered.gather(0, place.reshape(1)).squeeze(0)
