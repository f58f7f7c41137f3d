"""Counts a tensor's elements between powers of two, on the tensor's device.

The exponent is taken from the bits, so no range has to be known first. Integer counts do not depend
on the order of addition. The tensor is read in pieces, because the device may have no memory for a
copy of the whole.
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
from runwatch_hooks.statistics.dense import dense, dense_view
from runwatch_hooks.statistics.readback import divisor_of

_BIAS: Final = 127
_NUM_CODES: Final = 257
"""The 256 exponents of float32, and one for zero."""
_ZERO: Final = 256
_PIECE: Final = {"cpu": 2**16}
"""Elements at a time: on a CPU what fits into its cache, elsewhere enough to hide a launch."""
_PIECE_ELSEWHERE: Final = 2**20


def count_log2(tensor: Tensor, scale: Tensor | None = None) -> Tensor | None:
    """(NUM_BINS,) int64 counts on the tensor's device, of its elements divided by `scale`.

    None if the tensor could only be read with a sync.
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
    # Elements that a sparse tensor does not store are zero.
    counts[ZEROS] += tensor.numel() * (2 if tensor.is_complex() else 1) - flat.numel()
    return counts


_FIRST_CODE: Final = LOWEST_EXPONENT + _BIAS
_RANGES: Final = (
    (ZEROS, _ZERO, _ZERO + 1),
    (BELOW, 0, _FIRST_CODE),
    (ABOVE, _FIRST_CODE + NUM_EXPONENTS, 255),
    (NONFINITE, 255, 256),
)
"""(bin, first code, end) of bins that collect several codes."""


def _codes(numbers: Tensor) -> Tensor:
    """Each element's biased float32 exponent; _ZERO for zero."""
    if numbers.dtype == torch.float64:  # large values would become infinite in float32
        exponents = (torch.frexp(numbers).exponent + (_BIAS - 1)).clamp(1, 254)
        codes = torch.where(numbers.isfinite(), exponents, 255)
        return torch.where(numbers == 0, _ZERO, codes)
    magnitudes = numbers.float().view(torch.int32) & 0x7FFFFFFF
    return torch.where(magnitudes == 0, _ZERO, magnitudes >> 23)


def _count(codes: Tensor) -> Tensor:
    if codes.device.type == "cpu":
        return torch.bincount(codes, minlength=_NUM_CODES)
    # `bincount` would be a sync, as it needs the greatest code.
    counts = torch.zeros(_NUM_CODES, dtype=torch.int64, device=codes.device)
    return counts.scatter_add_(0, codes.long(), torch.ones_like(codes, dtype=torch.int64))
