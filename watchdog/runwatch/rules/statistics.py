"""Functions of a window's samples: a matrix of windows in, one number for each out.

Legend: K windows, F samples in each, oldest first. Every function reduces the rows of a contiguous
matrix, so that a window's result has the same bits however many others stand beside it.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

MAD_TO_STD: Final = 1.4826
"""MAD of a normal distribution times this is its standard deviation."""
ROBUST_FLOOR: Final = 0.01
"""`robust_z` takes no scale below this share of the median: on a plateau, where MAD shrinks to
nothing, a change in the fourth digit would otherwise be many 'deviations' away."""


def median(windows_KF: Matrix) -> Matrix:
    size = windows_KF.shape[1]
    low, high = (size - 1) // 2, size // 2
    ordered_KF = np.partition(windows_KF, sorted({low, high}), axis=1)
    return np.asarray(0.5 * (ordered_KF[:, low] + ordered_KF[:, high]))


def mad(windows_KF: Matrix) -> Matrix:
    """Median of the absolute distances from the median, unscaled."""
    return median(np.abs(windows_KF - median(windows_KF)[:, np.newaxis]))


def mean(windows_KF: Matrix) -> Matrix:
    return np.asarray(windows_KF.mean(axis=1))


def std(windows_KF: Matrix) -> Matrix:
    """Of a sample (n - 1)."""
    return np.asarray(windows_KF.std(axis=1, ddof=1))


def lowest(windows_KF: Matrix) -> Matrix:
    return np.asarray(windows_KF.min(axis=1))


def highest(windows_KF: Matrix) -> Matrix:
    return np.asarray(windows_KF.max(axis=1))


def ewma(windows_KF: Matrix) -> Matrix:
    """Weighted mean; each sample weighs 1 - 2/(F + 1) times the one after it."""
    size = windows_KF.shape[1]
    weights_F: Matrix = np.power(
        1.0 - 2.0 / (size + 1), np.arange(size - 1, -1, -1, dtype=np.float64)
    )
    return np.asarray((windows_KF * (weights_F / weights_F.sum())).sum(axis=1))


def slope(windows_KF: Matrix) -> Matrix:
    """Of the straight line of least squares, a sample."""
    size = windows_KF.shape[1]
    places_F: Matrix = np.arange(size, dtype=np.float64) - 0.5 * (size - 1)
    return np.asarray((windows_KF * places_F).sum(axis=1) / (places_F**2).sum())


def newest(windows_KF: Matrix) -> Matrix:
    return np.asarray(windows_KF[:, -1])


def oldest(windows_KF: Matrix) -> Matrix:
    return np.asarray(windows_KF[:, 0])


def total(windows_KF: Matrix) -> Matrix:
    return np.asarray(windows_KF.sum(axis=1))


def quantile(windows_KF: Matrix, share: float) -> Matrix:
    """With linear interpolation between samples."""
    size = windows_KF.shape[1]
    place = share * (size - 1)
    low = int(place)
    high = min(low + 1, size - 1)
    ordered_KF = np.partition(windows_KF, sorted({low, high}), axis=1)
    weight = place - low
    return np.asarray(ordered_KF[:, low] * (1.0 - weight) + ordered_KF[:, high] * weight)


def zscore(current_K: Matrix, windows_KF: Matrix) -> Matrix:
    """Distance from the mean, in standard deviations; over a constant window 0 or infinite."""
    return _ratio(current_K - mean(windows_KF), std(windows_KF))


def robust_z(current_K: Matrix, windows_KF: Matrix) -> Matrix:
    """Distance from the median, in standard deviations estimated by MAD, floored."""
    centre_K = median(windows_KF)
    spread_K = median(np.abs(windows_KF - centre_K[:, np.newaxis]))
    floor_K = ROBUST_FLOOR * np.abs(centre_K)
    return _ratio(current_K - centre_K, np.maximum(MAD_TO_STD * spread_K, floor_K))


def _ratio(distance_K: Matrix, scale_K: Matrix) -> Matrix:
    """Their ratio, with 0 / 0 = 0: a sample like all the others is no deviation."""
    return np.asarray(np.where(distance_K == 0.0, 0.0, distance_K / scale_K))


OF_WINDOW: Final[Mapping[str, Callable[[Matrix], Matrix]]] = {
    "median": median,
    "mad": mad,
    "mean": mean,
    "std": std,
    "min": lowest,
    "max": highest,
    "ewma": ewma,
    "slope": slope,
    "prev": oldest,
    "last": newest,
    "age": newest,
    "count": total,
    "first": median,
}

OF_CURRENT: Final[Mapping[str, Callable[[Matrix, Matrix], Matrix]]] = {
    "zscore": zscore,
    "robust_z": robust_z,
}
"""Functions that set the current sample against its window."""


def of_windows(
    function: str, parameter: float, windows_KF: Matrix, current_K: Matrix | None = None
) -> Matrix:
    """(K,) what a function of the rule language makes of each window. `parameter` is the share of
    a quantile; functions of `OF_CURRENT` need `current_K`, the others do not look at it."""
    if function in OF_CURRENT:
        assert current_K is not None, f"{function} sets a current sample against its window"
        return OF_CURRENT[function](current_K, windows_KF)
    if function == "quantile":
        return quantile(windows_KF, parameter)
    return OF_WINDOW[function](windows_KF)
