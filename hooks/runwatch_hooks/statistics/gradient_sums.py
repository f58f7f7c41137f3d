"""Reads CPU tensors once: sum of squares, greatest magnitude, non-finite elements, zeros.

The compiled kernel (`one_pass.c`) computes all four for each element. Without it, numpy computes
one after the other on pieces that stay in the processor's cache, so that memory is read once too.
148 gradients of a GPT with 21.4 M parameters, float32, one thread, CPU time, the minimum of 12
alternating runs on a busy machine:

    compiled                                                10.5 ms   all four, exact
    numpy                                                   16.3 ms   all four, exact
    torch._foreach_norm                                      8.9 ms   the norm alone, off by 8e-5
    + aminmax per tensor                                    20.8 ms   still no zeros
    + count_nonzero per tensor                              53.6 ms
    torch._foreach_norm of order 2 and infinity             76.3 ms
    norm, max-abs, isfinite, zeros per tensor by `.item()` 162.8 ms

On torch's two threads, the compiled reading takes 2.0 ms of wall time after a backward pass, and
3.3 ms on one (medians of 15; for 1.7 M parameters 0.20 and 0.34 ms, medians of 120).

Numpy's sums of squares are dot products of at most 8192 elements: below 10 000, OpenBLAS uses no
second thread, whose spinning would slow down torch's own.
"""

import ctypes
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.statistics.dense import dense, numpy_view
from runwatch_hooks.statistics.totals import exact_sums

log = OwnLog(__name__)

LIBRARY: Final = Path(__file__).with_name("_one_pass.so")
"""Built with the package; nothing is compiled later."""
_VERSION: Final = 3
_SHARED_FROM: Final = 65_536
"""Elements of an array from which torch's threads are used. Torch's own operations use them on
tensors of this size at every step. They are not used for smaller ones: a process forked after
OpenMP had started threads can still train small layers, and would hang in its first parallel
region."""


class Spots:
    """Evenly spaced elements of several float32 arrays."""

    def __init__(
        self, addresses: Sequence[int], strides: Sequence[int], counts: Sequence[int]
    ) -> None:
        """Per array: address of the first element, stride in elements, and number of elements. The
        caller must keep the memory alive."""
        self._addresses = np.array(addresses, np.uint64)
        begins = np.cumsum(counts) - counts
        self._steps = np.array([strides, counts, begins], np.int64)
        self.num_arrays = len(counts)
        self.greatest_span = max(map(operator.mul, strides, counts), default=0)
        """Length in elements of the longest array, up to its last sampled element."""
        self.pointers: Final[tuple[int, int, int]] = (
            self._addresses.ctypes.data,
            self._steps[0].ctypes.data,
            self._steps[1].ctypes.data,
        )
        self.begins: Final = self._steps[2].ctypes.data
        """Address of the (T,) offsets at which each array's elements are remembered."""


class OnePass:
    """Reads float32 arrays in host memory, each once, with torch's own threads and as many of them
    as torch uses (`torch.set_num_threads`, OMP_NUM_THREADS)."""

    def __init__(self, library: ctypes.CDLL, in_threads: int | None = None) -> None:
        """`in_threads` is the address of OpenMP's function for parallel regions; without it, one
        thread is used. Raises AttributeError if the library lacks one of its functions."""
        self._in_threads = in_threads
        pointer, number, threads = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint
        self._read = library.runwatch_read
        self._read.argtypes = (pointer, pointer, number, pointer, pointer, threads)
        self._read.restype = ctypes.c_int32
        self._follow = library.runwatch_follow
        self._follow.argtypes = (pointer,) * 4 + (number,) + (pointer,) * 3 + (threads,)
        self._follow.restype = None
        self._stand = library.runwatch_stand
        self._stand.argtypes = (pointer, pointer, pointer, number, pointer)
        self._stand.restype = ctypes.c_int32

    def read(
        self, addresses: Sequence[int], sizes: Sequence[int] | NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """(3, T) sums of squares, greatest magnitudes (NaN if an element is), numbers of zeros."""
        where = np.array(addresses, np.uint64)
        lengths = np.asarray(sizes, np.int64)
        found = np.empty((3, len(sizes)))
        num_threads = self._num_threads(int(lengths.max(initial=0)))
        if not self._read(
            where.ctypes.data,
            lengths.ctypes.data,
            len(sizes),
            found.ctypes.data,
            self._in_threads,
            num_threads,
        ):
            raise MemoryError("no memory to read tensors with")
        return found

    def _num_threads(self, greatest: int) -> int:
        return torch.get_num_threads() if greatest >= _SHARED_FROM else 1

    def stand(self, spots: Spots, remembered: NDArray[np.float32]) -> bool:
        """Whether elements equal the remembered ones bit by bit. Checks some of each array."""
        found = self._stand(*spots.pointers, spots.num_arrays, remembered.ctypes.data)
        return bool(found)

    def follow(self, spots: Spots, remembered: NDArray[np.float32]) -> NDArray[np.float64]:
        """(T,) sums of squared differences between each array's elements and the remembered ones,
        which are then replaced by the current ones."""
        squares = np.empty(spots.num_arrays)
        self._follow(
            *spots.pointers,
            spots.begins,
            spots.num_arrays,
            remembered.ctypes.data,
            squares.ctypes.data,
            self._in_threads,
            self._num_threads(spots.greatest_span),
        )
        return squares


class NoOnePassError(Exception):
    """The compiled reader cannot be used; the text says why."""


def load_one_pass(path: Path = LIBRARY) -> OnePass | None:
    """The compiled reader; None if it was not built, or for another version or machine."""
    try:
        return find_one_pass(path)
    except NoOnePassError:
        return None


def find_one_pass(path: Path = LIBRARY) -> OnePass:
    """The compiled reader. Raises NoOnePassError."""
    if not path.exists():
        raise NoOnePassError(f"{path.name} was not compiled when runwatch was installed")
    try:
        library = ctypes.CDLL(str(path))
        version = library.runwatch_version()
        if version == _VERSION:
            return OnePass(library, _threads_of_torch())
    except (OSError, AttributeError) as error:
        raise NoOnePassError(f"{path.name} cannot be loaded ({error})") from error
    raise NoOnePassError(f"{path.name} is of version {version}, wanted {_VERSION}")


class OnePassOpener:
    """Opens the compiled reader, and logs once if that is not possible."""

    def __init__(self, path: Path = LIBRARY) -> None:
        self._path = path
        self._has_warned = False

    def __call__(self) -> OnePass | None:
        try:
            return find_one_pass(self._path)
        except NoOnePassError as error:
            if not self._has_warned:
                self._has_warned = True
                log.warning(
                    "gradients in host memory are read in a slower way: %s; "
                    "install runwatch again where there is a C compiler",
                    error,
                )
            return None


open_one_pass: Final = OnePassOpener()
"""The one of this process."""


def _threads_of_torch() -> int | None:
    """Address of GOMP_parallel, by which compiled code runs in OpenMP's threads. Torch loads its
    OpenMP with global symbols, so this finds torch's own; None if torch uses another OpenMP."""
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value
    except (OSError, AttributeError, TypeError):
        return None


Sums = NDArray[np.float64]
"""(5, T): rows SUM_OF_SQUARES, MAX_ABS, NUM_NONFINITE, NUM_ZEROS, NUM_ELEMENTS. The first is over
the finite elements only, so that it stays useful beside the count of the others; the second is NaN
or infinite if an element is, and so tells which."""
SUM_OF_SQUARES: Final = 0
MAX_ABS: Final = 1
NUM_NONFINITE: Final = 2
NUM_ZEROS: Final = 3
NUM_ELEMENTS: Final = 4

_COMPILED: Final = np.array([[SUM_OF_SQUARES], [MAX_ABS], [NUM_ZEROS]])
"""The rows that the compiled kernel computes, in its order."""

_Float32s = NDArray[np.float32]
_Four = tuple[float, float, int, int]
"""The first four rows of one tensor."""

_PLAIN_TYPES: Final = (Tensor, nn.Parameter)
_FLOAT32: Final = torch.float32  # looked up once, not for each tensor of each step
_STRIDED: Final = torch.strided
_ZERO: Final = np.float32(0.0)
_DOT: Final = 2048
"""Elements that BLAS may sum in float32: four times as many are off by 4e-6 beside numpy 1.26."""
_CHUNK: Final = 32 * _DOT
"""Elements, 256 KiB: half of that costs 8 % more for calls, and twice that saves nothing."""
_SMALL: Final = 16_384
"""Tensors up to this size are read together: five calls for each would cost more than a copy."""
_TINY: Final = 1e-15
"""Magnitude below which squares underflow in float32, so that the exact way is taken."""
_SMALLEST_SUM: Final = 1e-30
"""Sum of squares below which some squares may have underflowed in float32."""


class GradientReader:
    """Reads CPU tensors, with buffers that are allocated once."""

    def __init__(self, one_pass: OnePass | None = None) -> None:
        """Without the compiled kernel, numpy is used, with the same results."""
        self._one_pass = one_pass
        self._is_zero = np.empty(_CHUNK, np.bool_)
        self._together = np.empty(_CHUNK, np.float32)
        self._squares = np.empty(_CHUNK, np.float32)

    def read(self, tensors: Sequence[Tensor]) -> Sums:
        """The sums of each tensor, in order; all 0 for an empty one."""
        sums = np.zeros((5, len(tensors)))
        sizes = [tensor.numel() for tensor in tensors]
        sums[NUM_ELEMENTS] = sizes
        plain = [index for index, tensor in enumerate(tensors) if _is_plain(tensor)]
        with np.errstate(all="ignore"):
            if len(plain) < len(tensors):
                for index in set(range(len(tensors))).difference(plain):
                    sums[:, index] = self._read_unlike(tensors[index])
            if self._one_pass is None:
                self._read_plain(plain, sizes, tensors, sums)
            elif plain:
                addresses = [tensors[index].data_ptr() for index in plain]
                places = np.array(plain)  # once, or numpy would convert the list at each use
                found = self._one_pass.read(addresses, sums[NUM_ELEMENTS, places])
                sums[_COMPILED, places] = found
                _mend(places, tensors, sums)
        return sums

    def squares(self, tensors: Sequence[Tensor]) -> NDArray[np.float64]:
        """(T,) sum of squares of each tensor; NaN or infinite if an element is.

        `torch._foreach_norm` accumulates in float32, with an error of 8e-5 at 4 M elements.
        """
        with np.errstate(all="ignore"):
            if self._one_pass is None or not all(map(_is_plain, tensors)):
                return np.array([_squares_of(tensor) for tensor in tensors])
            addresses = [tensor.data_ptr() for tensor in tensors]
            found = self._one_pass.read(addresses, [one.numel() for one in tensors])
            squares, greatest = found[0], found[1]
            held = (squares > _SMALLEST_SUM) & (squares < np.inf) | (greatest == 0.0)
            if not held.all():
                doubtful: list[int] = np.flatnonzero(~held).tolist()
                squares[doubtful] = [_squares_of(tensors[index]) for index in doubtful]
        return np.asarray(squares)

    def _read_plain(
        self, plain: Sequence[int], sizes: Sequence[int], tensors: Sequence[Tensor], sums: Sums
    ) -> None:
        small: list[int] = []
        for index in plain:
            if sizes[index] > _SMALL:
                numbers = numpy_view(tensors[index].view(-1))
                sums[:NUM_ELEMENTS, index] = self._read_large(_chunks(numbers), tensors[index])
            elif sizes[index]:
                small.append(index)
        for batch in _batches(small, sizes):
            self._read_small(batch, [numpy_view(tensors[index].view(-1)) for index in batch], sums)
            _mend(batch, tensors, sums)

    def _read_unlike(self, tensor: Tensor) -> tuple[float, ...]:
        """Read a tensor of another dtype, or one that is not contiguous."""
        flat = dense(tensor)
        if flat.dtype == torch.float64:
            four = _read_exactly(flat)
        else:
            four = self._read_large((numpy_view(piece.float()) for piece in _pieces(flat)), flat)
        # Elements that a sparse tensor does not store are zero.
        num_absent = tensor.numel() - flat.numel() if tensor.layout is not _STRIDED else 0
        return (*four[:NUM_ZEROS], four[NUM_ZEROS] + num_absent, flat.numel() + num_absent)

    def _read_large(self, chunks: Iterable[_Float32s], tensor: Tensor) -> _Four:
        """Read chunk by chunk in float32; if that is not exact, read `tensor` exactly."""
        squares, num_zeros = 0.0, 0
        extremes: list[np.float32] = []
        for chunk in chunks:
            squares += _sum_of_squares(chunk)
            extremes += (np.maximum.reduce(chunk), np.minimum.reduce(chunk))
            is_zero = np.equal(chunk, _ZERO, out=self._is_zero[: chunk.size])  # of either sign
            num_zeros += int(np.count_nonzero(is_zero))
        greatest = float(np.abs(extremes).max(initial=0.0))  # NaN if there is one
        if not _is_exact(squares, greatest):
            return _read_exactly(dense(tensor))
        return squares, greatest, 0, num_zeros

    def _read_small(self, batch: Sequence[int], arrays: Sequence[_Float32s], sums: Sums) -> None:
        ends = sums[NUM_ELEMENTS, batch].cumsum().astype(np.intp)
        starts = np.concatenate(([0], ends[:-1]))
        together = np.concatenate(arrays, axis=None, out=self._together[: ends[-1]])
        squares = np.multiply(together, together, out=self._squares[: together.size])
        totals = np.add.reduceat(squares, starts)
        greatest = np.maximum(
            np.maximum.reduceat(together, starts), -np.minimum.reduceat(together, starts)
        )
        is_zero = np.equal(together, _ZERO, out=self._is_zero[: together.size])
        if np.count_nonzero(is_zero):
            sums[NUM_ZEROS, batch] = np.add.reduceat(is_zero, starts, dtype=np.int64)
        sums[SUM_OF_SQUARES, batch] = totals
        sums[MAX_ABS, batch] = greatest


def _mend(indices: Sequence[int] | NDArray[np.intp], tensors: Sequence[Tensor], sums: Sums) -> None:
    """Read those tensors again, exactly, whose sums left the range of float32."""
    squares, greatest = sums[SUM_OF_SQUARES, indices], sums[MAX_ABS, indices]
    held = (squares < np.inf) & (greatest < np.inf) & ((greatest > _TINY) | (greatest == 0.0))
    if not held.all():
        inexact: list[int] = np.flatnonzero(~held).tolist()
        for place in inexact:
            sums[:NUM_ELEMENTS, indices[place]] = _read_exactly(dense(tensors[indices[place]]))


def _squares_of(tensor: Tensor) -> float:
    flat = dense(tensor)
    if flat.dtype == torch.float32:
        squares = sum(_sum_of_squares(chunk) for chunk in _chunks(numpy_view(flat)))
        if _SMALLEST_SUM < squares < np.inf:
            return squares
    chunks = (numpy_view(piece.double()) for piece in _pieces(flat))
    return float(sum(np.dot(chunk, chunk) for chunk in chunks))


def _is_exact(squares: float, greatest: float) -> bool:
    """Whether float32 was sufficient: everything finite, and no square out of range."""
    return squares < np.inf and (_TINY < greatest < np.inf or greatest == 0.0)


def _sum_of_squares(chunk: _Float32s) -> float:
    if chunk.size <= _DOT:
        return float(np.dot(chunk, chunk))
    num_whole = chunk.size - chunk.size % _DOT
    rows, rest = chunk[:num_whole].reshape(-1, _DOT), chunk[num_whole:]
    # As np.vecdot does it, which numpy has since 2.0: BLAS's dot product, one row after another.
    dots: list[float] = np.matmul(rows[:, np.newaxis, :], rows[:, :, np.newaxis]).ravel().tolist()
    return math.fsum(dots) + float(np.dot(rest, rest))


def _read_exactly(flat: Tensor) -> _Four:
    return exact_sums(numpy_view(piece.double()) for piece in _pieces(flat))


def _chunks(numbers: _Float32s) -> Iterator[_Float32s]:
    for start in range(0, numbers.size, _CHUNK):
        yield numbers[start : start + _CHUNK]


def _pieces(flat: Tensor) -> Iterator[Tensor]:
    for start in range(0, flat.numel(), _CHUNK):
        yield flat[start : start + _CHUNK]


def _batches(indices: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Indices of tensors, in batches that fit into the buffers."""
    batch: list[int] = []
    room = _CHUNK
    for index in indices:
        if sizes[index] > room:
            yield batch
            batch, room = [], _CHUNK
        batch.append(index)
        room -= sizes[index]
    if batch:
        yield batch


def _is_plain(tensor: Tensor) -> bool:
    """Whether its memory can be read directly: contiguous float32.

    Not for subclasses, such as DTensor, whose elements may be elsewhere.
    """
    return (
        tensor.dtype is _FLOAT32
        and type(tensor) in _PLAIN_TYPES
        and tensor.layout is _STRIDED
        and not tensor.requires_grad
        and tensor.is_contiguous()
    )
