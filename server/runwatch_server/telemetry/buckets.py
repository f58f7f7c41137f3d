"""Buckets: aggregates of consecutive steps, with minimum, maximum, mean and the number of
non-finite values.

Arrays are (B, C): buckets and columns. Minimum, maximum and mean are those of the finite values,
and NaN if there were none. A spike of one step survives in the maximum and a NaN in the count,
however coarse the bucket; a mean or a sample would lose both.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from runwatch import zstd
from runwatch.nonfinite import is_absent

LEVELS: Final = (64, 512, 4096)
"""Steps per bucket; a factor of 8 apart, so that no chart reads more than 8 times what it shows."""
TILE_STEPS: Final = {64: 1024, 512: 16_384, 4096: 131_072}
"""Steps that a stored tile covers at each level."""
TILE_LAYERS: Final = 32
MERGE: Final = 8

_FEW: Final = 16
"""Up to this many rows, a group is faster to process row by row."""

_NAN_OCTETS: Final = np.frombuffer(np.array(np.nan, "<f4").tobytes(), np.uint8)

N = TypeVar("N", bound=np.number)


@dataclass(frozen=True, slots=True, eq=False)
class Buckets:
    """Columns aggregated over buckets of equal width."""

    steps: NDArray[np.int64]
    """(B,) first step of each bucket."""
    low: NDArray[np.floating]
    high: NDArray[np.floating]
    mean: NDArray[np.floating]
    count: NDArray[np.integer]
    """Number of finite values."""
    nonfinite: NDArray[np.integer]
    """Number of values recorded as NaN or infinite."""

    def rows(self, keep: NDArray[np.bool_] | NDArray[np.int64]) -> "Buckets":
        return Buckets(
            self.steps[keep],
            self.low[keep],
            self.high[keep],
            self.mean[keep],
            self.count[keep],
            self.nonfinite[keep],
        )

    def columns(self, columns: slice | NDArray[np.int64]) -> "Buckets":
        return Buckets(
            self.steps,
            self.low[:, columns],
            self.high[:, columns],
            self.mean[:, columns],
            self.count[:, columns],
            self.nonfinite[:, columns],
        )

    def spread(self, targets: NDArray[np.int64] | None, num_columns: int) -> "Buckets":
        """The columns at the places `targets` (C,) among `num_columns`, the others without values.
        None: they are all of them, in order."""
        if targets is None:
            return self
        return Buckets(
            self.steps,
            _spread(self.low, targets, num_columns, np.nan),
            _spread(self.high, targets, num_columns, np.nan),
            _spread(self.mean, targets, num_columns, np.nan),
            _spread(self.count, targets, num_columns, 0),
            _spread(self.nonfinite, targets, num_columns, 0),
        )


def _spread(
    values: NDArray[N], targets: NDArray[np.int64], num_columns: int, empty: float
) -> NDArray[N]:
    spread: NDArray[N] = np.full((len(values), num_columns), empty, values.dtype)
    spread[:, targets] = values
    return spread


def from_values(
    steps: NDArray[np.int64], values: NDArray[np.float32] | NDArray[np.float64]
) -> Buckets:
    """Values (N, C) as buckets of one step each."""
    finite = np.isfinite(values)
    numbers = np.where(finite, values, np.nan).astype(np.float64)
    nonfinite = ~finite & ~is_absent(values)
    return Buckets(
        steps, numbers, numbers, numbers, finite.astype(np.int64), nonfinite.astype(np.int64)
    )


def summarise(first_step: int, values: NDArray[np.float32] | NDArray[np.float64]) -> Buckets:
    """All rows of `values` (N, C) as one bucket."""
    finite = np.isfinite(values)
    if finite.all():  # nearly always: three fast passes
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


def from_stretch(
    steps: NDArray[np.int64], values: NDArray[np.float32] | NDArray[np.float64], width: int
) -> list[Buckets]:
    """Values (N, C) of ascending steps, aggregated by `width` steps if there are many columns: for
    a single column, `regroup` does that for all buckets at once."""
    if values.shape[1] == 1 or not steps.size:
        return [from_values(steps, values)]
    places = steps // width
    edges = [*np.flatnonzero(np.diff(places, prepend=places[0] - 1)).tolist(), len(steps)]
    return [
        summarise(int(places[start]) * width, values[start:end])
        for start, end in itertools.pairwise(edges)
    ]


def regroup(pieces: Sequence[Buckets], width: int, num_columns: int) -> Buckets:
    """Buckets of `width` steps, aligned to its multiples, from finer ones in any order."""
    held = [_coarser(_in_order(piece), width) for piece in pieces if piece.steps.size]
    if not held:
        return _empty(num_columns)
    return _coarser(_in_order(_joined(held)), width)  # a bucket may be in two pieces


def side_by_side(columns: Sequence[Buckets]) -> Buckets:
    """Combine buckets of one column each, with equal widths, as the columns of one."""
    steps = np.unique(np.concatenate([np.empty(0, np.int64), *(one.steps for one in columns)]))
    numbers = np.full((3, len(steps), len(columns)), np.nan)
    counts = np.zeros((2, len(steps), len(columns)), np.int64)
    for index, one in enumerate(columns):
        rows = np.searchsorted(steps, one.steps)
        for plane, values in enumerate((one.low, one.high, one.mean)):
            numbers[plane, rows, index] = values[:, 0]
        counts[0, rows, index], counts[1, rows, index] = one.count[:, 0], one.nonfinite[:, 0]
    return Buckets(steps, *numbers, *counts)


def _coarser(fine: Buckets, width: int) -> Buckets:
    """Consecutive buckets, aggregated to `width` steps."""
    steps = fine.steps // width * width
    starts = np.flatnonzero(np.diff(steps, prepend=steps[0] - 1))
    sizes = np.diff(starts, append=len(steps))
    if int(sizes.max()) == 1:
        return replace(fine, steps=steps)
    reduce = _by_place if int(sizes.max()) <= _FEW else _by_run
    low, high = reduce(np.fmin, fine.low, starts, sizes), reduce(np.fmax, fine.high, starts, sizes)
    counts = reduce(np.add, fine.count, starts, sizes)
    with np.errstate(over="ignore", invalid="ignore"):
        totals = _times(fine.mean, fine.count)
        sums = reduce(np.add, totals, starts, sizes)
    mean = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    if not np.isfinite(sums).all():  # beyond float64, where each share of the mean is within it
        shares = _times(fine.mean, fine.count / np.maximum(np.repeat(counts, sizes, axis=0), 1))
        with np.errstate(over="ignore"):  # by rounding only
            mean = np.where(counts > 0, reduce(np.add, shares, starts, sizes), np.nan)
            mean = np.clip(mean, low, high)
    nonfinite = reduce(np.add, fine.nonfinite, starts, sizes)
    return Buckets(steps[starts], low, high, mean, counts, nonfinite)


def _times(mean: NDArray[np.floating], weight: NDArray[np.number]) -> NDArray[np.float64]:
    """The product; 0 if there is no mean."""
    products: NDArray[np.float64] = np.zeros(mean.shape)
    np.multiply(mean, weight, out=products, where=weight > 0)
    return products


def _by_run(
    combine: np.ufunc, rows: NDArray[N], starts: NDArray[np.intp], sizes: NDArray[np.intp]
) -> NDArray[N]:
    reduced: NDArray[N] = combine.reduceat(rows, starts, axis=0)
    return reduced


def _by_place(
    combine: np.ufunc, rows: NDArray[N], starts: NDArray[np.intp], sizes: NDArray[np.intp]
) -> NDArray[N]:
    """The same for groups of few rows: takes the first row of all groups, then the second of those
    that have one, and so on; a tenth of the time if rows are wide (2000 rows of 300 columns, 4 to a
    group)."""
    reduced = rows[starts]
    for place in range(1, int(sizes.max())):
        longer = np.flatnonzero(sizes > place)
        if len(longer) == len(starts):
            combine(reduced, rows[starts + place], out=reduced)
        else:
            reduced[longer] = combine(reduced[longer], rows[starts[longer] + place])
    return reduced


def encode_tile(buckets: Buckets, *, first_step: int, level: int, is_metric: bool) -> bytes:
    """A tile's bytes: every bucket from `first_step` on; those without values are empty."""
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
    return zstd.compress(raw)


def decode_tile(
    data: bytes, *, first_step: int, level: int, is_metric: bool, column: int | None = None
) -> Buckets:
    """The buckets of a tile; `column`: only this one."""
    item = 8 if is_metric else 4
    num_buckets = TILE_STEPS[level] // level
    raw = zstd.decompress(data)
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
    """Combine tiles of layers, by first step and place: all buckets of those steps, all layers.

    Each tile is copied to its place, and the numbers of all are decoded at once: a heat map of a
    long run has thousands of tiles, and a dozen small arrays for each took twice as long as
    everything else.
    """
    size = TILE_STEPS[level] // level
    starts = sorted({first_step for first_step, _ in tiles})
    rows = {first_step: index * size for index, first_step in enumerate(starts)}
    octets = np.empty((4, 3, len(starts) * size, num_columns), np.uint8)
    octets[:] = _NAN_OCTETS[:, np.newaxis, np.newaxis, np.newaxis]
    counts = np.zeros((2, len(starts) * size, num_columns), np.uint16)
    decompress = zstd.unpacker()
    for (first_step, place), data in tiles.items():
        row, column = rows[first_step], place * TILE_LAYERS
        width = min(TILE_LAYERS, num_columns - column)
        raw = decompress(data)
        cells = 3 * size * width
        here = np.s_[..., row : row + size, column : column + width]
        octets[here] = np.frombuffer(raw, np.uint8, 4 * cells).reshape(4, 3, size, width)
        counts[here] = np.frombuffer(raw, "<u2", offset=4 * cells).reshape(2, size, width)
    steps = np.add.outer(np.array(starts, np.int64), level * np.arange(size, dtype=np.int64))
    low, high, mean = _floats_of(octets)
    count, nonfinite = counts.astype(np.int32)
    return Buckets(steps.reshape(-1), low, high, mean, count, nonfinite)


def _floats_of(octets: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Floats whose bytes are stored in separate planes, the lowest first: (4, ...) bytes become
    (...) numbers."""
    words = octets[3].astype(np.uint32)
    for plane in octets[2::-1]:
        words <<= np.uint32(8)
        words |= plane
    floats: NDArray[np.float32] = words.view(np.float32)
    return floats


def _joined(pieces: Sequence[Buckets]) -> Buckets:
    """The pieces one after another, whatever the widths of their buckets."""
    return Buckets(
        np.concatenate([piece.steps for piece in pieces]),
        np.concatenate([piece.low for piece in pieces]),
        np.concatenate([piece.high for piece in pieces]),
        np.concatenate([piece.mean for piece in pieces]),
        np.concatenate([piece.count for piece in pieces]),
        np.concatenate([piece.nonfinite for piece in pieces]),
    )


def _in_order(buckets: Buckets) -> Buckets:
    if (np.diff(buckets.steps) >= 0).all():  # nearly always, which saves a copy
        return buckets
    return buckets.rows(np.argsort(buckets.steps, kind="stable"))


def _empty(num_columns: int) -> Buckets:
    numbers = np.empty((0, num_columns), np.float64)
    counts = np.empty((0, num_columns), np.int64)
    return Buckets(np.empty(0, np.int64), numbers, numbers, numbers, counts, counts)
