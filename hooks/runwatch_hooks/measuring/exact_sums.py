"""A gradient's sums in float64; the slow way."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def exact_sums(chunks: Iterable[NDArray[np.float64]]) -> tuple[float, float, int, int]:
    """Sum of squares of the finite elements, the greatest magnitude (NaN or infinite if one is),
    the number of non-finite elements, and the number of zeros. `chunks` are one-dimensional."""
    squares, greatest, num_nonfinite, num_zeros = 0.0, 0.0, 0, 0
    for chunk in chunks:
        finite = chunk[np.isfinite(chunk)]
        squares += float(np.dot(finite, finite))
        greatest = float(np.maximum(greatest, np.abs(chunk).max(initial=0.0)))  # keeps a NaN
        num_nonfinite += chunk.size - finite.size
        num_zeros += finite.size - int(np.count_nonzero(finite))
    return squares, greatest, num_nonfinite, num_zeros
