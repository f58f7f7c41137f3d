"""The compiled reading of gradients and of samples (one_pass.c), where the installation had a C
compiler."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

LIBRARY: Final = Path(__file__).with_name("_one_pass.so")
"""Written by the build; nothing is compiled once the package is installed."""
_VERSION: Final = 2


class Spots:
    """Some elements of each of several float32 arrays, evenly spread."""

    def __init__(
        self, addresses: Sequence[int], strides: Sequence[int], counts: Sequence[int]
    ) -> None:
        """Of the arrays in turn: where the first element lies, how many elements on the next one
        is, and how many there are. Whoever makes this sees to it that the memory stays."""
        self._addresses = np.array(addresses, np.uint64)
        self._steps = np.array([strides, counts], np.int64)
        self.num_arrays = len(counts)
        self.pointers: Final[tuple[int, int, int]] = (
            self._addresses.ctypes.data,
            self._steps[0].ctypes.data,
            self._steps[1].ctypes.data,
        )


class OnePass:
    """Float32 arrays in the host's memory, each read once."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Raises AttributeError where the library lacks one of its functions."""
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._read = library.runwatch_read
        self._read.argtypes = (pointer, pointer, number, pointer)
        self._read.restype = None
        self._follow = library.runwatch_follow
        self._follow.argtypes = (pointer, pointer, pointer, number, pointer, pointer)
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
        self._read(where.ctypes.data, lengths.ctypes.data, len(sizes), found.ctypes.data)
        return found

    def stand(self, spots: Spots, remembered: NDArray[np.float32]) -> bool:
        """Whether elements are those that are remembered, bit by bit. Not all are asked, but some
        of each array."""
        found = self._stand(*spots.pointers, spots.num_arrays, remembered.ctypes.data)
        return bool(found)

    def follow(self, spots: Spots, remembered: NDArray[np.float32]) -> NDArray[np.float64]:
        """(T,): sums of squares of how far each array's elements lie from those remembered, which
        are all of them end to end. The elements of now take their place."""
        squares = np.empty(spots.num_arrays)
        self._follow(*spots.pointers, spots.num_arrays, remembered.ctypes.data, squares.ctypes.data)
        return squares


def load_one_pass(path: Path = LIBRARY) -> OnePass | None:
    """None where nothing was compiled, or for another version or machine: numpy reads instead."""
    try:
        library = ctypes.CDLL(str(path))
        return OnePass(library) if library.runwatch_version() == _VERSION else None
    except (OSError, AttributeError):
        return None
