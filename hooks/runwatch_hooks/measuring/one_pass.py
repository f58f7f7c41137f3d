"""The compiled reading of gradients and samples (one_pass.c), if a C compiler was there at
installation."""

import ctypes
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from runwatch_hooks.own_log import OwnLog

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
