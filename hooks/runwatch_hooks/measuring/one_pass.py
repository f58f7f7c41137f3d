"""The compiled reading of gradients and of samples (one_pass.c), where the installation had a C
compiler."""

import ctypes
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

LIBRARY: Final = Path(__file__).with_name("_one_pass.so")
"""Written by the build; nothing is compiled once the package is installed."""
_VERSION: Final = 3
_SHARED_FROM: Final = 65_536
"""Elements of one array. On a tensor of as many torch's own operations take its threads at every
step; so do we, and never where torch does not: a process forked from one that had threads can train
small layers, and would hang where its first threads are asked for."""


class Spots:
    """Some elements of each of several float32 arrays, evenly spread."""

    def __init__(
        self, addresses: Sequence[int], strides: Sequence[int], counts: Sequence[int]
    ) -> None:
        """Of the arrays in turn: where the first element lies, how many elements on the next one
        is, and how many there are. Whoever makes this sees to it that the memory stays."""
        self._addresses = np.array(addresses, np.uint64)
        begins = np.cumsum(counts) - counts
        self._steps = np.array([strides, counts, begins], np.int64)
        self.num_arrays = len(counts)
        self.greatest_span = max(map(operator.mul, strides, counts), default=0)
        """Elements of the longest array, as far as it is sampled."""
        self.pointers: Final[tuple[int, int, int]] = (
            self._addresses.ctypes.data,
            self._steps[0].ctypes.data,
            self._steps[1].ctypes.data,
        )
        self.begins: Final = self._steps[2].ctypes.data
        """Where those of each array are remembered, all of them end to end."""


class OnePass:
    """Float32 arrays in the host's memory, each read once, by as many threads as torch takes for
    its own work (`torch.set_num_threads`, OMP_NUM_THREADS), and by the very same ones."""

    def __init__(self, library: ctypes.CDLL, in_threads: int | None = None) -> None:
        """`in_threads` is the address of OpenMP's way to share work out; without it this thread
        does all. Raises AttributeError where the library lacks one of its functions."""
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
        """(3, T): sums of squares, greatest magnitudes (a NaN prevails), numbers of zeros."""
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
        """Whether elements are those that are remembered, bit by bit. Not all are asked, but some
        of each array."""
        found = self._stand(*spots.pointers, spots.num_arrays, remembered.ctypes.data)
        return bool(found)

    def follow(self, spots: Spots, remembered: NDArray[np.float32]) -> NDArray[np.float64]:
        """(T,): sums of squares of how far each array's elements lie from those remembered, which
        are all of them end to end. The elements of now take their place."""
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


def load_one_pass(path: Path = LIBRARY) -> OnePass | None:
    """None where nothing was compiled, or for another version or machine: numpy reads instead."""
    try:
        library = ctypes.CDLL(str(path))
        if library.runwatch_version() != _VERSION:
            return None
        return OnePass(library, _threads_of_torch())
    except (OSError, AttributeError):
        return None


def _threads_of_torch() -> int | None:
    """The function by which code that a compiler made runs in OpenMP's threads. Torch loads its
    OpenMP for all to see, so what is found is torch's own; None where it has another kind."""
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value
    except (OSError, AttributeError, TypeError):
        return None
