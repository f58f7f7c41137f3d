"""Numbers that may still be on an accelerator."""

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.ranks.shards import whole
from runwatch_hooks.step.user_numbers import as_count, as_float

Number = float | Tensor
"""A tensor if the number is on an accelerator, where converting it to a float would be a sync."""


def number(value: float | Tensor) -> Number:
    """A float, or a copy on the accelerator, where a float would be a sync. Of a tensor with
    several elements, their mean.

    Raises ValueError for a sharded tensor, whose value would need a collective, and for a tensor on
    the meta device, which has none.
    """
    if not isinstance(value, Tensor):
        return as_float(value)
    plain = whole(value.detach())
    if plain is None:
        raise ValueError("found a DTensor in parts, wanted a replicated one: full_tensor()")
    if plain.is_meta:
        raise ValueError("found a tensor on meta, which holds none")
    if plain.numel() != 1:
        plain = plain.float().mean()
    return float(plain) if plain.device.type == "cpu" else plain.float().reshape(()).clone()


def count(value: float | Tensor) -> Number:
    """A count. Raises ValueError for a tensor with several elements, and for a value that is not
    finite, unless a sync would be needed to know."""
    if not isinstance(value, Tensor):
        return as_count(value)
    if value.numel() != 1:
        raise ValueError(f"it holds {value.numel()} of them")
    counted = number(value)
    return counted if isinstance(counted, Tensor) else as_count(counted)


def lesser(earlier: Number, later: Number) -> Number:
    """The smaller of two numbers, or NaN if one is. If they are on different devices, the later."""
    if isinstance(earlier, float) and isinstance(later, float):
        return earlier if math.isnan(earlier) or earlier < later else later
    if isinstance(earlier, Tensor) and isinstance(later, Tensor) and earlier.device == later.device:
        return torch.minimum(earlier, later)
    return later


def either(earlier: Number, later: Number) -> Number:
    """1 if one of two flags is set, else 0. If they are on different accelerators, the later."""
    if isinstance(earlier, Tensor) and isinstance(later, Tensor):
        return torch.maximum(earlier, later) if earlier.device == later.device else later
    known, other = (earlier, later) if isinstance(earlier, float) else (later, earlier)
    return other if known == 0.0 else known


log = OwnLog(__name__)

PREFIX = "user/"
"""Prefix for the name of a user's metric where the hook records one of that name itself."""


class ReservedNames:
    """The names under which the hook has recorded metrics in this run.

    Where a user's metric has such a name, both are kept: rules rely on the meaning of the hook's
    (`step_time` is in seconds, `grad_norm` is measured before clipping), and the user's matters to
    the user. A name that the hook does not record in this run, such as `loss_scale` without a
    scaler, is the user's.
    """

    def __init__(self) -> None:
        self._ours: set[str] = set()
        self._renamed: set[str] = set()
        self._untold: list[str] = []

    def add(self, names: Iterable[str]) -> None:
        """Reserve the names of metrics that the hook records."""
        self._ours.update(names)

    def apart(self, numbers: Mapping[str, Number]) -> dict[str, Number]:
        """The user's metrics, renamed where their names are reserved."""
        if self._ours.isdisjoint(numbers):
            return dict(numbers)
        return {self._other(name): value for name, value in numbers.items()}

    def untold(self) -> list[str]:
        """Names of renamed metrics that were not reported yet, each returned once."""
        untold, self._untold = self._untold, []
        return untold

    def _other(self, name: str) -> str:
        if name not in self._ours:
            return name
        if name not in self._renamed:
            self._renamed.add(name)
            self._untold.append(name)
            log.warning(
                "%r is a name that is recorded anyway: yours is stored as %r", name, PREFIX + name
            )
        return PREFIX + name
