"""Numbers that may still be on an accelerator."""

import math

import torch
from torch import Tensor

from runwatch_hooks.ranks.shards import whole
from runwatch_hooks.rows.user_numbers import as_count, as_float

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
