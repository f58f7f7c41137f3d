"""The compiled reading of gradients (one_pass.c), where the installation had a C compiler."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

LIBRARY: Final = Path(__file__).with_name("_one_pass.so")
"""Written by the build; nothing is compiled once the package is installed."""
_VERSION: Final = 1


class OnePass:
    """Float32 arrays in the host's memory, each read once."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._read = library.runwatch_read
        pointer = ctypes.c_void_p
        self._read.argtypes = (pointer, pointer, ctypes.c_int64, pointer)
        self._read.restype = None

    def read(
        self, addresses: Sequence[int], sizes: Sequence[int] | NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """(3, T): sums of squares, greatest magnitudes (a NaN prevails), numbers of zeros."""
        where = np.array(addresses, np.uint64)
        lengths = np.asarray(sizes, np.int64)
        found = np.empty((3, len(sizes)))
        self._read(where.ctypes.data, lengths.ctypes.data, len(sizes), found.ctypes.data)
        return found


def load_one_pass(path: Path = LIBRARY) -> OnePass | None:
    """None where nothing was compiled, or for another version or machine: numpy reads instead."""
    try:
        library = ctypes.CDLL(str(path))
        version = library.runwatch_version()
    except (OSError, AttributeError):
        return None
    return OnePass(library) if version == _VERSION else None
