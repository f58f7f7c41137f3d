# pyright: basic, reportMissingImports=false, reportArgumentType=false
"""Triton kernels that read tensors: gradients once, and samples of weights before and after a step.

For gradients, the first launch gives each program a stretch of one tensor and stores its partial
results; the second adds up the stretches of each tensor, in order. There are no atomic additions,
so equal bits give equal numbers.

Gradients in float32 and bfloat16 range from 1e-45 to 3e38, and float32 cannot hold their squares.
Float64 could, at a sixty-fourth of the speed on many GPUs. So a stretch is first read as if its
values were of normal size, with few instructions, because memory is only just the bottleneck. If
its greatest magnitude shows that they were not (too great, too small, or non-finite), it is read
again, from the cache, and its squares are summed in three ranges, like LAPACK's norm (Blue 1978;
Anderson 2017, "Safe scaling in the level 1 BLAS"). Partial results are float64.

Legend: B lanes of a block.
"""

import numpy as np
import torch
import triton
import triton.language as tl

from runwatch.nonfinite import ABSENT_32
from runwatch_hooks.statistics.totals import GRAD_NORM, UPDATE_RATIO, ZERO_FRAC

ELEMENT_TYPES = {
    torch.float32: tl.float32,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float64: tl.float64,
}
"""Dtypes that are read directly; float64 is rounded to float32."""
SAMPLED_TYPES = (torch.float32, torch.float16, torch.bfloat16)
"""Dtypes that float32 holds exactly, so that small updates are not lost."""

# Bits of float32 without the sign, which have the same order as the magnitudes.
_INFINITY = tl.constexpr(0x7F800000)
_NAN = tl.constexpr(0x7FC00000)
_ABSENT = tl.constexpr(int(ABSENT_32.view(np.int32)))
_GRAD_NORM = tl.constexpr(GRAD_NORM)
_ZERO_FRAC = tl.constexpr(ZERO_FRAC)
_UPDATE_RATIO = tl.constexpr(UPDATE_RATIO)
_BIG = tl.constexpr((127 + 48) << 23)
_SMALL = tl.constexpr((127 - 48) << 23)
# If the greatest element of a stretch is between these, its squares are summed directly: the loss
# from underflow, at most 2^16 times 2^-150, is negligible beside the greatest square, 2^-96.
# Elements beyond them are scaled into the middle, where 2^16 squares stay within float32.
_SCALE_BIG = tl.constexpr(2.0**-80)
_SCALE_SMALL = tl.constexpr(2.0**100)
_UNSCALE_BIG = tl.constexpr(2.0**160)
_UNSCALE_SMALL = tl.constexpr(2.0**-200)


@triton.jit
def _add(x_B, square_B, greatest_B, nonzero_B):
    """Add a block of elements of normal size to the partial results."""
    x_B = x_B.to(tl.float32)
    bits_B = x_B.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    square_B += x_B * x_B
    greatest_B = tl.maximum(greatest_B, bits_B)
    nonzero_B += tl.minimum(bits_B, 1)
    return square_B, greatest_B, nonzero_B


@triton.jit
def _sums_in_ranges(first, length, BLOCK: tl.constexpr):
    """For elements of any size: sum of squares of the finite ones, the greatest magnitude (as
    bits), which is NaN or infinite if one is, and the number of those."""
    lanes_B = tl.arange(0, BLOCK)
    big_B = tl.zeros([BLOCK], tl.float32)
    middle_B = tl.zeros([BLOCK], tl.float32)
    small_B = tl.zeros([BLOCK], tl.float32)
    greatest_B = tl.zeros([BLOCK], tl.int32)
    bad_B = tl.zeros([BLOCK], tl.int32)
    for at in range(0, length, BLOCK):
        x_B = tl.load(first + (at + lanes_B), mask=at + lanes_B < length, other=0.0)
        bits_B = x_B.to(tl.float32).to(tl.int32, bitcast=True) & 0x7FFFFFFF
        is_bad_B = bits_B >= _INFINITY
        greatest_B = tl.maximum(greatest_B, bits_B)
        bits_B = tl.where(is_bad_B, 0, bits_B)
        is_big_B = bits_B > _BIG
        is_small_B = bits_B < _SMALL
        scale_B = tl.where(is_big_B, _SCALE_BIG, tl.where(is_small_B, _SCALE_SMALL, 1.0))
        scaled_B = bits_B.to(tl.float32, bitcast=True) * scale_B
        square_B = scaled_B * scaled_B
        big_B += tl.where(is_big_B, square_B, 0.0)
        small_B += tl.where(is_small_B, square_B, 0.0)
        middle_B += tl.where(is_big_B | is_small_B, 0.0, square_B)
        bad_B += is_bad_B.to(tl.int32)
    squares = tl.sum(big_B).to(tl.float64) * _UNSCALE_BIG
    squares += tl.sum(middle_B).to(tl.float64)
    squares += tl.sum(small_B).to(tl.float64) * _UNSCALE_SMALL
    return squares, tl.max(greatest_B), tl.sum(bad_B)


@triton.jit
def read_stretches(
    addresses,
    sizes,
    owners,
    starts,
    partials,
    DTYPE: tl.constexpr,
    IS_ALIGNED: tl.constexpr,
    STRETCH: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Program p reads STRETCH elements of the tensor owners[p], from starts[p] on. While it adds up
    a block, the next ones are being loaded: STAGES blocks are in flight.

    (P, 4) float64 `partials`: sum of squares of the finite elements, greatest magnitude, number of
    elements that are not finite, number of zeros.
    """
    program = tl.program_id(0)
    tensor = tl.load(owners + program)
    start = tl.load(starts + program)
    length = tl.minimum(tl.load(sizes + tensor) - start, STRETCH).to(tl.int32)
    first = tl.load(addresses + tensor).to(tl.pointer_type(DTYPE)) + start
    lanes_B = tl.arange(0, BLOCK)
    square_B = tl.zeros([BLOCK], tl.float32)
    greatest_B = tl.zeros([BLOCK], tl.int32)
    nonzero_B = tl.zeros([BLOCK], tl.int32)
    # Whole blocks are loaded without a mask. With a mask whose length is not known to be a multiple
    # of anything, each lane would load its elements one by one.
    whole = length - length % BLOCK
    for at in tl.range(0, whole, BLOCK, num_stages=STAGES):
        where_B = first + (at + lanes_B)
        if IS_ALIGNED:
            where_B = tl.multiple_of(where_B, 16)
        square_B, greatest_B, nonzero_B = _add(tl.load(where_B), square_B, greatest_B, nonzero_B)
    if whole < length:
        x_B = tl.load(first + (whole + lanes_B), mask=whole + lanes_B < length, other=0.0)
        square_B, greatest_B, nonzero_B = _add(x_B, square_B, greatest_B, nonzero_B)
    squares = tl.sum(square_B).to(tl.float64)
    greatest = tl.max(greatest_B)
    num_bad = 0
    if (greatest > _BIG) | ((greatest < _SMALL) & (greatest > 0)):
        # With fewer lanes: its registers would otherwise reduce the occupancy.
        squares, greatest, num_bad = _sums_in_ranges(first, length, BLOCK // 8)
    out = partials + program * 4
    tl.store(out, squares)
    tl.store(out + 1, greatest.to(tl.float32, bitcast=True).to(tl.float64))
    tl.store(out + 2, num_bad.to(tl.float64))
    tl.store(out + 3, (length - tl.sum(nonzero_B)).to(tl.float64))


@triton.jit
def join_stretches(partials, firsts, sizes, places, found, BLOCK: tl.constexpr):
    """Program t joins the stretches firsts[t] to firsts[t + 1] of one tensor.

    (N, 4) float32 `found`, at its row places[t]: norm, greatest magnitude, number of non-finite
    elements, share of zeros.
    """
    tensor = tl.program_id(0)
    first = tl.load(firsts + tensor)
    last = tl.load(firsts + tensor + 1)
    lanes_B = tl.arange(0, BLOCK)
    squares_B = tl.zeros([BLOCK], tl.float64)
    greatest_B = tl.zeros([BLOCK], tl.int32)  # as bits: a maximum of floats would lose a NaN
    bad_B = tl.zeros([BLOCK], tl.float64)
    zeros_B = tl.zeros([BLOCK], tl.float64)
    for at in range(first, last, BLOCK):
        here_B = at + lanes_B
        is_there_B = here_B < last
        row_B = partials + here_B * 4
        squares_B += tl.load(row_B, mask=is_there_B, other=0.0)
        magnitude_B = tl.load(row_B + 1, mask=is_there_B, other=0.0).to(tl.float32)
        greatest_B = tl.maximum(greatest_B, magnitude_B.to(tl.int32, bitcast=True) & 0x7FFFFFFF)
        bad_B += tl.load(row_B + 2, mask=is_there_B, other=0.0)
        zeros_B += tl.load(row_B + 3, mask=is_there_B, other=0.0)
    out = found + tl.load(places + tensor) * 4
    size = tl.load(sizes + tensor).to(tl.float64)
    tl.store(out, tl.sqrt(tl.sum(squares_B)).to(tl.float32))
    tl.store(out + 1, tl.max(greatest_B).to(tl.float32, bitcast=True))
    tl.store(out + 2, tl.sum(bad_B).to(tl.float32))
    tl.store(out + 3, (tl.sum(zeros_B) / size).to(tl.float32))


@triton.jit
def remember_samples(table, kept, marks, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    """Program p copies the sample of a tensor to `kept`.

    (P, 5) int64 `table`: address of the first element, stride in elements, number of elements,
    offset in `kept`, and the tensor's place. marks[place], int32, becomes the bits of NaN if an
    element is non-finite, and otherwise those of 'not recorded'.
    """
    row = table + tl.program_id(0) * 5
    base = tl.load(row).to(tl.pointer_type(DTYPE))
    stride = tl.load(row + 1)
    count = tl.load(row + 2)
    out = kept + tl.load(row + 3)
    lanes_B = tl.arange(0, BLOCK)
    greatest_B = tl.zeros([BLOCK], tl.int32)
    for at in range(0, count, BLOCK):
        here_B = at + lanes_B
        is_there_B = here_B < count
        x_B = tl.load(base + here_B * stride, mask=is_there_B, other=0.0).to(tl.float32)
        tl.store(out + here_B, x_B, mask=is_there_B)
        greatest_B = tl.maximum(greatest_B, x_B.to(tl.int32, bitcast=True) & 0x7FFFFFFF)
    mark = tl.where(tl.max(greatest_B) >= _INFINITY, _NAN, _ABSENT)
    tl.store(marks + tl.load(row + 4), mark)


@triton.jit
def compare_samples(table, kept, shares, squares, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    """Program p compares the sample of a tensor with the one that `remember_samples` has kept.

    squares[place], float32, becomes the sum of squared differences, times shares[place].
    """
    row = table + tl.program_id(0) * 5
    base = tl.load(row).to(tl.pointer_type(DTYPE))
    stride = tl.load(row + 1)
    count = tl.load(row + 2)
    before = kept + tl.load(row + 3)
    place = tl.load(row + 4)
    lanes_B = tl.arange(0, BLOCK)
    square_B = tl.zeros([BLOCK], tl.float32)
    for at in range(0, count, BLOCK):
        here_B = at + lanes_B
        is_there_B = here_B < count
        x_B = tl.load(base + here_B * stride, mask=is_there_B, other=0.0).to(tl.float32)
        moved_B = x_B - tl.load(before + here_B, mask=is_there_B, other=0.0)
        square_B += moved_B * moved_B
    tl.store(squares + place, tl.sum(square_B) * tl.load(shares + place))


@triton.jit
def finish_ratios(stats, norms, sparse_above, num, BLOCK: tl.constexpr):
    """Program p finishes a block of the num tensors, as `DeviceReader.finish_ratios` says."""
    here_B = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_there_B = here_B < num
    norm_B = tl.load(norms + here_B, mask=is_there_B, other=0.0)
    grad_norm_B = tl.load(stats + _GRAD_NORM * num + here_B, mask=is_there_B, other=0.0)
    zeros_B = tl.load(stats + _ZERO_FRAC * num + here_B, mask=is_there_B, other=0.0)
    limit_B = tl.load(sparse_above + here_B, mask=is_there_B, other=0.0)
    out_B = stats + _UPDATE_RATIO * num + here_B
    square_B = tl.load(out_B, mask=is_there_B, other=0.0)
    is_missed_B = (square_B == 0.0) & (grad_norm_B != 0.0) & (zeros_B > limit_B)
    is_known_B = (square_B >= 0.0) & (norm_B != 0.0) & (is_missed_B == 0)
    ratio_B = tl.div_rn(tl.sqrt_rn(square_B), norm_B).to(tl.int32, bitcast=True)
    ratio_B = tl.where(is_known_B, ratio_B, _ABSENT)
    tl.store(out_B, ratio_B.to(tl.float32, bitcast=True), mask=is_there_B)
