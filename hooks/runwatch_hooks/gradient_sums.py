"""What one reading of CPU tensors tells: sum of squares, greatest magnitude, bad and zero elements.

A tensor is read in pieces that stay in the processor's cache, so that memory is read once
however many things are asked of it. 148 gradients of a GPT with 21.4 M parameters, float32, one
thread, quiet machine, least of 40 runs:

    this                                                    10   ms   all four, exact
    torch._foreach_norm                                      5.5 ms   the norm alone, off by 8e-5
    + aminmax per tensor                                    14.7 ms   still no zeros
    + count_nonzero per tensor                              45   ms
    torch._foreach_norm of order 2 and infinity             70   ms
    norm, max-abs, isfinite, zeros per tensor by `.item()` 202   ms

Sums of squares are dot products of at most 8192 elements: below 10 000 OpenBLAS takes no second
thread, whose waiting would slow down torch's own.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runwatch_hooks.dense import dense

Sums = NDArray[np.float64]
"""(5, T): rows SUM_OF_SQUARES, MAX_ABS, NUM_NONFINITE, NUM_ZEROS, NUM_ELEMENTS. The first two
are over the finite elements only: beside the count of the others they stay readable."""
SUM_OF_SQUARES: Final = 0
MAX_ABS: Final = 1
NUM_NONFINITE: Final = 2
NUM_ZEROS: Final = 3
NUM_ELEMENTS: Final = 4

_Float32s = NDArray[np.float32]

_CHUNK: Final = 65_536
"""Elements, 256 KiB: half of that costs 8 % more for calls, twice that nothing less."""
_SMALL: Final = 16_384
"""Tensors up to this size are read together: eight calls for each would cost more than a copy."""
_DOT: Final = 8192
_TINY: Final = 1e-15
"""Below it squares of float32 leave its range, and the exact way is taken."""


class GradientReader:
    """Reads tensors of a CPU with buffers made once."""

    def __init__(self) -> None:
        self._is_zero = np.empty(_CHUNK, np.bool_)
        self._together = np.empty(_CHUNK, np.float32)

    def read(self, tensors: Sequence[Tensor]) -> Sums:
        """The sums of each tensor, in order. An empty tensor has 0 of everything."""
        sums = np.zeros((5, len(tensors)))
        flats = [dense(tensor) for tensor in tensors]
        small: dict[int, _Float32s] = {}
        with np.errstate(all="ignore"):
            for index, flat in enumerate(flats):
                if flat.dtype != torch.float32 or flat.numel() > _SMALL:
                    sums[:NUM_ELEMENTS, index] = self._read_large(flat)
                elif flat.numel():
                    small[index] = flat.numpy()
            for batch in _batches(small):
                self._read_small(batch, small, sums)
        sums[NUM_ELEMENTS] = [flat.numel() for flat in flats]
        for index, tensor in enumerate(tensors):
            if tensor.is_sparse:  # what it does not hold is zero
                sums[NUM_ZEROS, index] += tensor.numel() - sums[NUM_ELEMENTS, index]
                sums[NUM_ELEMENTS, index] = tensor.numel()
        return sums

    def _read_large(self, flat: Tensor) -> tuple[float, float, int, int]:
        if flat.dtype == torch.float64:
            return _read_exactly(flat)
        squares, num_zeros = 0.0, 0
        extremes: list[np.float32] = []
        for chunk in _float32_chunks(flat):
            squares += _sum_of_squares(chunk)
            extremes += (np.maximum.reduce(chunk), np.minimum.reduce(chunk))
            is_zero = np.equal(chunk, 0.0, out=self._is_zero[: chunk.size])  # of either sign
            num_zeros += int(np.count_nonzero(is_zero))
        greatest = float(np.abs(extremes).max())  # a NaN prevails
        if not _is_exact(squares, greatest):
            return _read_exactly(flat)
        return squares, greatest, 0, num_zeros

    def _read_small(self, batch: Sequence[int], arrays: dict[int, _Float32s], sums: Sums) -> None:
        mine = [arrays[index] for index in batch]
        sizes = [one.size for one in mine]
        starts = np.array([0, *sizes[:-1]]).cumsum()
        together = np.concatenate(mine, out=self._together[: sum(sizes)])
        squares = [_sum_of_squares(one) for one in mine]
        is_zero = np.equal(together, 0.0, out=self._is_zero[: together.size])
        if is_zero.any():
            sums[NUM_ZEROS, batch] = np.add.reduceat(is_zero, starts, dtype=np.int64)
        greatest = np.maximum.reduceat(np.abs(together, out=together), starts)
        sums[SUM_OF_SQUARES, batch] = squares
        sums[MAX_ABS, batch] = greatest
        for index, square, most in zip(batch, squares, greatest.tolist(), strict=True):
            if not _is_exact(square, most):
                flat = torch.from_numpy(arrays[index])
                sums[:NUM_ELEMENTS, index] = _read_exactly(flat)


def sum_of_squares(tensor: Tensor) -> float:
    """Of all elements of a CPU tensor; NaN or infinite where one of them is.

    `torch._foreach_norm` adds in float32 and is off by 8e-5 at 4 M elements.
    """
    flat = dense(tensor)
    with np.errstate(all="ignore"):
        if flat.dtype != torch.float64:
            squares = sum(_sum_of_squares(chunk) for chunk in _float32_chunks(flat))
            if 1e-30 < squares < np.inf:
                return squares
        chunks = (piece.double().numpy() for piece in _pieces(flat))
        return float(sum(np.dot(chunk, chunk) for chunk in chunks))


def _is_exact(squares: float, greatest: float) -> bool:
    """Whether float32 held what was asked of it: all was finite, and no square left its range."""
    return squares < np.inf and (_TINY < greatest < np.inf or greatest == 0.0)


def _sum_of_squares(chunk: _Float32s) -> float:
    if chunk.size <= _DOT:
        return float(np.dot(chunk, chunk))
    num_whole = chunk.size - chunk.size % _DOT
    rows, rest = chunk[:num_whole].reshape(-1, _DOT), chunk[num_whole:]
    return float(np.vecdot(rows, rows).sum(dtype=np.float64)) + float(np.dot(rest, rest))


def _read_exactly(flat: Tensor) -> tuple[float, float, int, int]:
    """The slow way: in float64, and with the elements that are not finite left out."""
    squares, greatest, num_nonfinite, num_zeros = 0.0, 0.0, 0, 0
    for piece in _pieces(flat):
        chunk = piece.double().numpy()
        finite = chunk[np.isfinite(chunk)]
        squares += float(np.dot(finite, finite))
        greatest = max(greatest, float(np.abs(finite).max(initial=0.0)))
        num_nonfinite += chunk.size - finite.size
        num_zeros += finite.size - int(np.count_nonzero(finite))
    return squares, greatest, num_nonfinite, num_zeros


def _float32_chunks(flat: Tensor) -> Iterator[_Float32s]:
    if flat.dtype == torch.float32:
        numbers = flat.numpy()
        for start in range(0, numbers.size, _CHUNK):
            yield numbers[start : start + _CHUNK]
    else:
        for piece in _pieces(flat):
            yield piece.float().numpy()


def _pieces(flat: Tensor) -> Iterator[Tensor]:
    for start in range(0, flat.numel(), _CHUNK):
        yield flat[start : start + _CHUNK]


def _batches(arrays: dict[int, _Float32s]) -> Iterator[list[int]]:
    """The indices of arrays in batches that fit the buffers."""
    batch: list[int] = []
    room = _CHUNK
    for index, numbers in arrays.items():
        if numbers.size > room:
            yield batch
            batch, room = [], _CHUNK
        batch.append(index)
        room -= numbers.size
    if batch:
        yield batch
