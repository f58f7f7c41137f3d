"""A number of a step that may still lie on an accelerator."""

import math

import torch
from torch import Tensor

from runwatch_hooks.ranks.shards import whole
from runwatch_hooks.rows.user_numbers import as_count, as_float

Number = float | Tensor
"""A tensor where the number lies on an accelerator, and asking for it would be a wait."""


def number(value: float | Tensor) -> Number:
    """A float, or a copy on the device where asking for the float would be a wait.

    Raises ValueError for a tensor in parts, of which asking for the whole would be a collective,
    and for one that has a shape and no numbers.
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
    """A number of things. Raises ValueError for several, and for one that is not finite, as far
    as that is known without a wait."""
    if not isinstance(value, Tensor):
        return as_count(value)
    if value.numel() != 1:
        raise ValueError(f"it holds {value.numel()} of them")
    counted = number(value)
    return counted if isinstance(counted, Tensor) else as_count(counted)


def lesser(earlier: Number, later: Number) -> Number:
    """The lesser of two; a NaN prevails. Of two that do not lie on one device it is the later."""
    if isinstance(earlier, float) and isinstance(later, float):
        return earlier if math.isnan(earlier) or earlier < later else later
    if isinstance(earlier, Tensor) and isinstance(later, Tensor) and earlier.device == later.device:
        return torch.minimum(earlier, later)
    return later


def either(earlier: Number, later: Number) -> Number:
    """Whether one of two flags is set, 1 or 0. Of two on different accelerators it is the later."""
    if isinstance(earlier, Tensor) and isinstance(later, Tensor):
        return torch.maximum(earlier, later) if earlier.device == later.device else later
    known, other = (earlier, later) if isinstance(earlier, float) else (later, earlier)
    return other if known == 0.0 else known
