"""How many elements of a tensor lie between which powers of two: counted where the tensor lies.

The exponent is read off the bits, so that no range has to be known first, and a count of integers
does not depend on the order in which it is made. In pieces: a copy of a whole tensor could be
what the device's memory has no room for.
"""

from typing import Final

import torch
from torch import Tensor

from runwatch.histograms import (
    ABOVE,
    BELOW,
    FIRST_EXPONENT,
    LOWEST_EXPONENT,
    NONFINITE,
    NUM_BINS,
    NUM_EXPONENTS,
    ZEROS,
)
from runwatch_hooks.measuring.dense import dense, dense_view
from runwatch_hooks.measuring.host_memory import divisor_of

_BIAS: Final = 127
_NUM_CODES: Final = 257
"""The 256 exponents of float32, and one for zero."""
_ZERO: Final = 256
_PIECE: Final = {"cpu": 2**16}
"""Elements at a time: what stays in a processor's cache, and elsewhere what hides a launch."""
_PIECE_ELSEWHERE: Final = 2**20


def count_log2(tensor: Tensor, scale: Tensor | None = None) -> Tensor | None:
    """(NUM_BINS,) int64 on the tensor's device, of its elements divided by `scale`.

    None for what could only be read by waiting for a device.
    """
    flat = dense(tensor) if tensor.device.type == "cpu" else dense_view(tensor)
    if flat is None:
        return None
    divisor = divisor_of(scale, flat.device)
    codes = torch.zeros(_NUM_CODES, dtype=torch.int64, device=flat.device)
    piece = _PIECE.get(flat.device.type, _PIECE_ELSEWHERE)
    for start in range(0, flat.numel(), piece):
        numbers = flat[start : start + piece]
        if scale is not None:
            numbers = numbers.float() / divisor
        codes += _count(_codes(numbers))
    counts = torch.zeros(NUM_BINS, dtype=torch.int64, device=flat.device)
    for bin_, first, last in _RANGES:
        counts[bin_] = codes[first:last].sum()
    counts[FIRST_EXPONENT:ABOVE] = codes[_FIRST_CODE : _FIRST_CODE + NUM_EXPONENTS]
    # What a sparse tensor does not hold is zero.
    counts[ZEROS] += tensor.numel() * (2 if tensor.is_complex() else 1) - flat.numel()
    return counts


_FIRST_CODE: Final = LOWEST_EXPONENT + _BIAS
_RANGES: Final = (
    (ZEROS, _ZERO, _ZERO + 1),
    (BELOW, 0, _FIRST_CODE),
    (ABOVE, _FIRST_CODE + NUM_EXPONENTS, 255),
    (NONFINITE, 255, 256),
)
"""Bins that gather several codes: from the first to before the last."""


def _codes(numbers: Tensor) -> Tensor:
    """Each element's exponent as float32 has it, biased; _ZERO for zero."""
    if numbers.dtype == torch.float64:  # float32 would make infinities of what is large
        exponents = (torch.frexp(numbers).exponent + (_BIAS - 1)).clamp(1, 254)
        codes = torch.where(numbers.isfinite(), exponents, 255)
        return torch.where(numbers == 0, _ZERO, codes)
    magnitudes = numbers.float().view(torch.int32) & 0x7FFFFFFF
    return torch.where(magnitudes == 0, _ZERO, magnitudes >> 23)


def _count(codes: Tensor) -> Tensor:
    if codes.device.type == "cpu":
        return torch.bincount(codes, minlength=_NUM_CODES)
    # `bincount` would wait for the greatest code.
    counts = torch.zeros(_NUM_CODES, dtype=torch.int64, device=codes.device)
    return counts.scatter_add_(0, codes.long(), torch.ones_like(codes, dtype=torch.int64))
