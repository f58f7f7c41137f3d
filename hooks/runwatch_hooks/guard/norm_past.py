"""The recent gradient norms of an optimizer, and whether a new one is far outside of them.

Everything is computed in tensors on the device of the norms, without a sync; the host only counts
the calls.

Norms are compared by their logarithms, since what matters is the factor. A norm is an outlier if it
is above the median of the last 128 norms by more than 8 robust deviations (the median absolute
deviation times 1.4826, which equals the standard deviation of a normal distribution), and by at
least a factor of ten. In 28 healthy published logs, 31 550 steps, there is no such step; in six
with an incident, five have one. With six deviations and a factor of four, some of the healthy logs
had one.

Outliers are not added to the history, or it would follow them. At most 8 of the last 128 norms are;
the ninth counts as a new level: it passes, and the history starts again from it. So a training
whose gradients have grown permanently loses only eight steps.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, cast

import torch
from msgspec import Meta, ValidationError, convert
from torch import Tensor

from runwatch_hooks.statistics.readback import to_device

WINDOW: Final = 128
"""Number of norms kept: enough for a stable median, few enough to follow a schedule."""
WARM_UP: Final = 64
"""Norms to collect before one is judged, as they vary a lot at first."""
MOST_GUARDED: Final = 8
_DEVIATIONS: Final = 8 * 1.4826
_LEAST_DISTANCE: Final = 2.3
"""A factor of 9.97. No quotient of two rounded norms equals it, so that ranks cannot differ."""
_UNKNOWN: Final = torch.inf
"""Stands for a norm not yet known."""
_GUARDED: Final = torch.nan
"""Stands for a norm that was an outlier."""


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """The verdict on one step; both are 0-dimensional float32, 1.0 or 0.0."""

    is_outlier: Tensor
    has_relearned: Tensor
    """It is the ninth outlier, so it passes and the history starts again."""


class NormPast:
    """The norm history of one optimizer."""

    def __init__(self) -> None:
        self._levels = torch.full((WINDOW,), _UNKNOWN, dtype=torch.float32, device="cpu")
        """(W,) logarithms of norms, a ring buffer."""
        self._num_judged = 0

    def judge(self, norm: Tensor, is_bad: Tensor) -> Verdict:
        """Whether a step with this norm is an outlier. Both arguments are 0-dimensional, on one
        device.

        A step with non-finite gradients (`is_bad`), or with a norm of 0, is not judged and does not
        change the history.
        """
        levels = to_device(self._levels, norm.device)
        # Rounded to eight bits, which are enough, so that a sum added in another order (on another
        # rank) gives the same level.
        level = norm.bfloat16().float().log()
        is_judged = (is_bad == 0.0) & (level > -torch.inf)  # false for NaN
        ordered = levels.sort().values  # infinity is after all known levels, then NaN
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
        """The history, with the levels on their device. They are not written to later."""
        return {"num_judged": self._num_judged, "levels": self._levels}

    def plain_state(self) -> dict[str, object]:
        """The history in strict JSON, without infinity and NaN: unknown levels and outliers are
        null, and `guarded` has the indices of outliers. A sync."""
        levels = cast("list[float]", self._levels.tolist())
        return {
            "num_judged": self._num_judged,
            "levels": [level if math.isfinite(level) else None for level in levels],
            "guarded": [place for place, level in enumerate(levels) if math.isnan(level)],
        }

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        """Restore either kind of state, or a list of levels with infinities and NaN. Raises
        KeyError or ValueError, with nothing changed."""
        try:
            num_judged = convert(state_dict["num_judged"], int)
            levels = state_dict["levels"]
            if not isinstance(levels, Tensor):
                levels = _levels_of(levels, state_dict.get("guarded", ()))
        except ValidationError as error:  # a ValueError by itself since msgspec 0.21 only
            raise ValueError(str(error)) from error
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
    """The lower median of the first `num_known` elements."""
    place = ((num_known - 1) // 2).clamp(min=0)
    return ordered.gather(0, place.reshape(1)).squeeze(0)
