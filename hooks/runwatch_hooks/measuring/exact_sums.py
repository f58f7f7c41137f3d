"""A gradient's sums in float64, with the elements that are not finite left out: the slow way."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def exact_sums(chunks: Iterable[NDArray[np.float64]]) -> tuple[float, float, int, int]:
    """Of the finite elements the sum of squares and the greatest magnitude; then how many elements
    are not finite, and how many are zero. `chunks` are one-dimensional."""
    squares, greatest, num_nonfinite, num_zeros = 0.0, 0.0, 0, 0
    for chunk in chunks:
        finite = chunk[np.isfinite(chunk)]
        squares += float(np.dot(finite, finite))
        greatest = max(greatest, float(np.abs(finite).max(initial=0.0)))
        num_nonfinite += chunk.size - finite.size
        num_zeros += finite.size - int(np.count_nonzero(finite))
    return squares, greatest, num_nonfinite, num_zeros
