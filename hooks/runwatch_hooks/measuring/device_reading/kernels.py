# pyright: basic, reportMissingImports=false, reportArgumentType=false
"""The kernel that reads gradients on an accelerator once, in Triton's language.

The first launch gives each program a stretch of one tensor, and leaves what it found of it in a
place of its own; the second adds up the stretches of each tensor, in their order. Nothing is
added by atomic operations, so that the same bits give the same numbers.

Squares are summed in three ranges, as LAPACK's norm does (Blue 1978; Anderson 2017, "Safe scaling
in the level 1 BLAS"): gradients in float32 and bfloat16 reach from 1e-45 to 3e38, and their squares
no float32 holds. Float64 would, at a sixty-fourth of the speed on many cards. Here only what each
program leaves is float64.

Legend: B lanes of a block.
"""

import torch
import triton
import triton.language as tl

ELEMENT_TYPES = {
    torch.float32: tl.float32,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float64: tl.float64,
}
"""What can be read as it lies; of float64 the nearest float32."""

# Bits of float32, without the sign: their order is that of the magnitudes.
_INFINITY = tl.constexpr(0x7F800000)
_BIG = tl.constexpr((127 + 48) << 23)
_SMALL = tl.constexpr((127 - 48) << 23)
# What lies beyond is scaled into the middle, where 2^15 squares stay within float32.
_SCALE_BIG = tl.constexpr(2.0**-80)
_SCALE_SMALL = tl.constexpr(2.0**100)
_UNSCALE_BIG = tl.constexpr(2.0**160)
_UNSCALE_SMALL = tl.constexpr(2.0**-200)


@triton.jit
def _fold(x_B, big_B, middle_B, small_B, greatest_B, bad_B, blank_B):
    """What was found so far, and a further block of elements."""
    bits_B = x_B.to(tl.float32).to(tl.int32, bitcast=True) & 0x7FFFFFFF
    is_bad_B = bits_B >= _INFINITY
    bits_B = tl.where(is_bad_B, 0, bits_B)
    is_big_B = bits_B > _BIG
    is_small_B = bits_B < _SMALL
    scale_B = tl.where(is_big_B, _SCALE_BIG, tl.where(is_small_B, _SCALE_SMALL, 1.0))
    scaled_B = bits_B.to(tl.float32, bitcast=True) * scale_B
    square_B = scaled_B * scaled_B
    big_B += tl.where(is_big_B, square_B, 0.0)
    small_B += tl.where(is_small_B, square_B, 0.0)
    middle_B += tl.where(is_big_B | is_small_B, 0.0, square_B)
    greatest_B = tl.maximum(greatest_B, bits_B)
    bad_B += is_bad_B.to(tl.int32)
    blank_B += (bits_B == 0).to(tl.int32)  # zeros, and what was blanked
    return big_B, middle_B, small_B, greatest_B, bad_B, blank_B


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
):
    """Program p reads STRETCH elements of the tensor owners[p], from starts[p] on.

    (P, 4) float64 `partials`: sum of squares and greatest magnitude of the finite elements, number
    of the others, number of zeros.
    """
    program = tl.program_id(0)
    tensor = tl.load(owners + program)
    start = tl.load(starts + program)
    stop = tl.minimum(start + STRETCH, tl.load(sizes + tensor))
    base = tl.load(addresses + tensor).to(tl.pointer_type(DTYPE))
    lanes_B = tl.arange(0, BLOCK)
    big_B = tl.zeros([BLOCK], tl.float32)
    middle_B = tl.zeros([BLOCK], tl.float32)
    small_B = tl.zeros([BLOCK], tl.float32)
    greatest_B = tl.zeros([BLOCK], tl.int32)
    bad_B = tl.zeros([BLOCK], tl.int32)
    blank_B = tl.zeros([BLOCK], tl.int32)
    # Whole blocks without a mask: under one, whose length is not known to be a multiple of
    # anything, each lane would load its elements one by one.
    num_whole = (stop - start) // BLOCK
    for index in range(num_whole):
        where_B = base + (start + index * BLOCK + lanes_B)
        if IS_ALIGNED:
            where_B = tl.multiple_of(where_B, 16)
        big_B, middle_B, small_B, greatest_B, bad_B, blank_B = _fold(
            tl.load(where_B), big_B, middle_B, small_B, greatest_B, bad_B, blank_B
        )
    rest = start + num_whole * BLOCK
    num_padded = 0
    if rest < stop:
        x_B = tl.load(base + (rest + lanes_B), mask=rest + lanes_B < stop, other=0.0)
        big_B, middle_B, small_B, greatest_B, bad_B, blank_B = _fold(
            x_B, big_B, middle_B, small_B, greatest_B, bad_B, blank_B
        )
        num_padded = (BLOCK - (stop - rest)).to(tl.int32)
    num_bad = tl.sum(bad_B)
    squares = tl.sum(big_B).to(tl.float64) * _UNSCALE_BIG
    squares += tl.sum(middle_B).to(tl.float64)
    squares += tl.sum(small_B).to(tl.float64) * _UNSCALE_SMALL
    out = partials + program * 4
    tl.store(out, squares)
    tl.store(out + 1, tl.max(greatest_B).to(tl.float32, bitcast=True).to(tl.float64))
    tl.store(out + 2, num_bad.to(tl.float64))
    tl.store(out + 3, (tl.sum(blank_B) - num_bad - num_padded).to(tl.float64))


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
    greatest_B = tl.zeros([BLOCK], tl.float64)
    bad_B = tl.zeros([BLOCK], tl.float64)
    zeros_B = tl.zeros([BLOCK], tl.float64)
    for at in range(first, last, BLOCK):
        here_B = at + lanes_B
        is_there_B = here_B < last
        row_B = partials + here_B * 4
        squares_B += tl.load(row_B, mask=is_there_B, other=0.0)
        greatest_B = tl.maximum(greatest_B, tl.load(row_B + 1, mask=is_there_B, other=0.0))
        bad_B += tl.load(row_B + 2, mask=is_there_B, other=0.0)
        zeros_B += tl.load(row_B + 3, mask=is_there_B, other=0.0)
    out = found + tl.load(places + tensor) * 4
    size = tl.load(sizes + tensor).to(tl.float64)
    tl.store(out, tl.sqrt(tl.sum(squares_B)).to(tl.float32))
    tl.store(out + 1, tl.max(greatest_B).to(tl.float32))
    tl.store(out + 2, tl.sum(bad_B).to(tl.float32))
    tl.store(out + 3, (tl.sum(zeros_B) / size).to(tl.float32))
