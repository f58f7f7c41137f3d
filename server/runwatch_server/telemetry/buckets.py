"""Stretches of steps summed up: minimum, maximum, mean, and how many values were no numbers.

Arrays are (B, C): buckets and columns. Minimum, maximum and mean are those of the finite values;
NaN where there was none. A spike of one step survives in the maximum and a NaN in the count,
however coarse the bucket: a mean, or a sample, would lose both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import zstandard
from numpy.typing import NDArray

from runwatch.nonfinite import is_absent

LEVELS: Final = (64, 512, 4096)
"""Steps a bucket; a factor of 8 apart, so that no chart reads over 8 times what it shows."""
TILE_STEPS: Final = {64: 1024, 512: 16_384, 4096: 131_072}
"""Steps a stored tile covers at each level."""
TILE_LAYERS: Final = 32
MERGE: Final = 8

_FLOAT_64: Final = 1
_ZSTD_LEVEL: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class Buckets:
    """Columns summed up over buckets of equal width."""

    steps: NDArray[np.int64]
    """(B,) first step of each bucket."""
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    mean: NDArray[np.float64]
    count: NDArray[np.int64]
    """Finite values."""
    nonfinite: NDArray[np.int64]
    """Values recorded as NaN or infinite."""

    def rows(self, keep: NDArray[np.bool_] | NDArray[np.int64]) -> "Buckets":
        return Buckets(
            self.steps[keep],
            self.low[keep],
            self.high[keep],
            self.mean[keep],
            self.count[keep],
            self.nonfinite[keep],
        )

    def columns(self, columns: slice) -> "Buckets":
        return Buckets(
            self.steps,
            self.low[:, columns],
            self.high[:, columns],
            self.mean[:, columns],
            self.count[:, columns],
            self.nonfinite[:, columns],
        )


def from_values(
    steps: NDArray[np.int64], values: NDArray[np.float32] | NDArray[np.float64]
) -> Buckets:
    """Values as buckets of one step; `values` is (N, C)."""
    finite = np.isfinite(values)
    numbers = np.where(finite, values, np.nan).astype(np.float64)
    nonfinite = ~finite & ~is_absent(values)
    return Buckets(
        steps, numbers, numbers, numbers, finite.astype(np.int64), nonfinite.astype(np.int64)
    )


def summarise(first_step: int, values: NDArray[np.float32] | NDArray[np.float64]) -> Buckets:
    """All rows of `values` (N, C) as one bucket."""
    finite = np.isfinite(values)
    if finite.all():  # nearly always: three quick passes
        low, high, mean = values.min(0), values.max(0), values.mean(0, dtype=np.float64)
        count = np.full(values.shape[1], len(values))
        nonfinite = np.zeros(values.shape[1], np.int64)
    else:
        numbers = np.where(finite, values, np.nan)
        low, high = np.fmin.reduce(numbers, axis=0), np.fmax.reduce(numbers, axis=0)
        count = finite.sum(0)
        total = np.where(finite, values, 0.0).sum(0, dtype=np.float64)
        mean = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
        nonfinite = (~finite & ~is_absent(values)).sum(0)
    low, high, mean = (array[np.newaxis].astype(np.float64) for array in (low, high, mean))
    return Buckets(
        np.array([first_step]), low, high, mean, count[np.newaxis], nonfinite[np.newaxis]
    )


def regroup(pieces: Sequence[Buckets], width: int, num_columns: int) -> Buckets:
    """Buckets of `width` steps, aligned to its multiples, out of finer ones in any order."""
    if not any(piece.steps.size for piece in pieces):
        return _empty(num_columns)
    joined = _in_order(_joined(pieces))
    steps = joined.steps // width * width
    starts = np.flatnonzero(np.diff(steps, prepend=steps[0] - 1))
    totals = np.where(joined.count > 0, joined.mean * joined.count, 0.0)
    sums = np.add.reduceat(totals, starts, axis=0)
    counts = np.add.reduceat(joined.count, starts, axis=0)
    return Buckets(
        steps[starts],
        np.fmin.reduceat(joined.low, starts, axis=0),
        np.fmax.reduceat(joined.high, starts, axis=0),
        np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0),
        counts,
        np.add.reduceat(joined.nonfinite, starts, axis=0),
    )


def encode_tile(buckets: Buckets, *, first_step: int, level: int, is_metric: bool) -> bytes:
    """A tile's bytes: every bucket from `first_step` on, those without a value left empty."""
    dtype = np.dtype("<f8" if is_metric else "<f4")
    num_buckets, num_columns = TILE_STEPS[level] // level, buckets.low.shape[1]
    places = (buckets.steps - first_step) // level
    numbers = np.full((3, num_buckets, num_columns), np.nan, dtype)
    counts = np.zeros((2, num_buckets, num_columns), "<u2")  # a bucket holds at most 4096
    with np.errstate(over="ignore"):  # a mean can leave float32 by rounding only
        for plane, array in enumerate((buckets.low, buckets.high, buckets.mean)):
            numbers[plane, places] = array
    counts[0, places], counts[1, places] = buckets.count, buckets.nonfinite
    octets = np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, dtype.itemsize)
    raw = octets.T.tobytes() + counts.tobytes()
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(raw)


def decode_tile(
    data: bytes, *, first_step: int, level: int, is_metric: bool, column: int | None = None
) -> Buckets:
    """The buckets of a tile; `column`: only this one."""
    item = 8 if is_metric else 4
    num_buckets = TILE_STEPS[level] // level
    raw = zstandard.ZstdDecompressor().decompress(data)
    num_columns = len(raw) // (num_buckets * (3 * item + 4))
    cells = 3 * num_buckets * num_columns
    planes = np.frombuffer(raw, np.uint8, cells * item).reshape(item, 3, num_buckets, num_columns)
    counts = np.frombuffer(raw, "<u2", offset=cells * item).reshape(2, num_buckets, num_columns)
    if column is not None:
        planes, counts = planes[..., column : column + 1], counts[..., column : column + 1]
    octets = np.ascontiguousarray(np.moveaxis(planes, 0, -1))
    numbers = octets.view(f"<f{item}")[..., 0].astype(np.float64)
    steps = first_step + level * np.arange(num_buckets, dtype=np.int64)
    return Buckets(steps, *numbers, *counts.astype(np.int64))


def decode_grid(tiles: Mapping[tuple[int, int], bytes], *, level: int, num_columns: int) -> Buckets:
    """Layers' tiles by first step and place, as one: all buckets of those steps, all layers.

    Each tile is put where it belongs, and numbers are made of all at once: a heat map of a long
    run has thousands of tiles, and a dozen small arrays for each took twice as long as the rest.
    """
    size = TILE_STEPS[level] // level
    starts = sorted({first_step for first_step, _ in tiles})
    rows = {first_step: index * size for index, first_step in enumerate(starts)}
    numbers = np.full((3, len(starts) * size, num_columns), np.nan, "<f4")
    octets = numbers.view(np.uint8).reshape(*numbers.shape, 4)
    counts = np.zeros((2, len(starts) * size, num_columns), "<u2")
    decompressor = zstandard.ZstdDecompressor()
    for (first_step, place), data in tiles.items():
        row, column = rows[first_step], place * TILE_LAYERS
        width = min(TILE_LAYERS, num_columns - column)
        raw = decompressor.decompress(data)
        cells = 3 * size * width
        planes = np.frombuffer(raw, np.uint8, 4 * cells).reshape(4, 3, size, width)
        here = np.s_[:, row : row + size, column : column + width]
        octets[here] = planes.transpose(1, 2, 3, 0)
        counts[here] = np.frombuffer(raw, "<u2", offset=4 * cells).reshape(2, size, width)
    steps = np.add.outer(np.array(starts, np.int64), level * np.arange(size, dtype=np.int64))
    low, high, mean = numbers.astype(np.float64)
    count, nonfinite = counts.astype(np.int64)
    return Buckets(steps.reshape(-1), low, high, mean, count, nonfinite)


def _joined(pieces: Sequence[Buckets]) -> Buckets:
    """Pieces one after another, as buckets of whatever widths they have."""
    return Buckets(
        np.concatenate([piece.steps for piece in pieces]),
        np.concatenate([piece.low for piece in pieces]),
        np.concatenate([piece.high for piece in pieces]),
        np.concatenate([piece.mean for piece in pieces]),
        np.concatenate([piece.count for piece in pieces]),
        np.concatenate([piece.nonfinite for piece in pieces]),
    )


def _in_order(buckets: Buckets) -> Buckets:
    if (np.diff(buckets.steps) >= 0).all():  # as nearly always: spares a copy of everything
        return buckets
    return buckets.rows(np.argsort(buckets.steps, kind="stable"))


def _empty(num_columns: int) -> Buckets:
    numbers = np.empty((0, num_columns), np.float64)
    counts = np.empty((0, num_columns), np.int64)
    return Buckets(np.empty(0, np.int64), numbers, numbers, numbers, counts, counts)
