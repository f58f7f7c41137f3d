"""The last samples of a series, for every layer at once.

Legend: T rows, L columns (layers; one for a series of the run), K points, N samples in a window,
D samples kept, C places in the buffer, X = 1 while all columns hold the samples of the same steps,
else L.

A window is counted in samples, and which rows give one differs between layers: what was not
recorded or is not finite never enters. So each column has its own end in the buffer, and a row's
window is found by how many samples of its column came before it. In most runs none is ever missing,
and then the columns share one row of steps, for a service holds windows of a thousand runs; and
their ends, and what else is counted by column, are one number each, for they move at every step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Kept = NDArray[np.floating]
"""float32 or float64"""
Ints = NDArray[np.int64]
Indices = NDArray[np.intp]

Counts = int | Indices
"""(L,) numbers, or the one that they all are."""

NO_STEP = -1

_LEAST_ROOM: Final = 32
"""Rows, behind what is kept, that come before it is moved to the buffer's start again."""

_NO_ROW, _ONE_ROW = np.zeros(0, np.intp), np.zeros(1, np.intp)
"""Of how many samples came before the rows that were laid: the same two arrays, never written to.
"""


@dataclass(frozen=True, slots=True)
class Samples:
    """What a block of rows brings to a window."""

    values_TL: Floats
    enter_TL: Bools
    steps_T: Ints

    def before(self, stop: int) -> "Samples":
        return Samples(self.values_TL[:stop], self.enter_TL[:stop], self.steps_T[:stop])


class History:
    """Samples of one series, newest last: twice a window's size, so that a rollback, which takes
    some back, still finds full windows before them.

    A block of rows is first laid behind what is kept, so that each of its rows can be asked for
    its window; then it is kept, whole or in part.
    """

    _values_LC: Kept
    _steps_XC: Ints
    _ends: Counts
    """Where each column's samples end in the buffer."""
    _filled: Counts
    """How many samples each holds."""
    _laid: Counts
    """How many more were laid behind them."""
    _before: Indices
    """(T,) or (T, L) how many of these came before each row."""

    def __init__(self, size: int, num_columns: int, *, is_narrow: bool = False) -> None:
        """`is_narrow`: every sample is a float32, and kept as one."""
        self.size = size
        self.depth = 2 * size
        self.settled: dict[str, Floats] = {}
        """(L,) what functions made of a window that stays as it is once full, when it was."""
        kind = np.float32 if is_narrow else np.float64
        self._take(np.full((num_columns, self.depth), np.nan, kind), _no_steps(self.depth))

    @property
    def num_columns(self) -> int:
        return len(self._values_LC)

    @property
    def num_bytes(self) -> int:
        """Memory of its buffers."""
        settled = sum(values_L.nbytes for values_L in self.settled.values())
        return self._values_LC.nbytes + self._steps_XC.nbytes + settled

    def lay(self, samples: Samples) -> None:
        """Put a block behind what is kept, in place of one laid before."""
        self._make_room(len(samples.steps_T))
        self._ends = _one_for_all(self._ends)
        if isinstance(self._ends, int):
            if self.num_columns and samples.enter_TL.all():
                before_T = np.arange(len(samples.steps_T))
                self._lay_evenly(self._ends, samples.values_TL, samples.steps_T, before_T)
                return
            enters_T: Bools = np.any(samples.enter_TL, axis=1)
            if (samples.enter_TL == enters_T[:, np.newaxis]).all():
                before_T = np.cumsum(enters_T, dtype=np.intp) - enters_T
                values_EL, steps_E = samples.values_TL[enters_T], samples.steps_T[enters_T]
                self._lay_evenly(self._ends, values_EL, steps_E, before_T)
                return
        self._steps_XC = np.repeat(self._steps_XC, self.num_columns // len(self._steps_XC), axis=0)
        arrived_TL = np.cumsum(samples.enter_TL, axis=0, dtype=np.intp)
        self._before = arrived_TL - samples.enter_TL
        self._laid = arrived_TL[-1]
        rows_E, columns_E = np.nonzero(samples.enter_TL)
        places_E = _at(self._ends, columns_E) + self._before[rows_E, columns_E]
        self._values_LC[columns_E, places_E] = samples.values_TL[rows_E, columns_E]
        self._steps_XC[columns_E, places_E] = samples.steps_T[rows_E]

    def _lay_evenly(self, end: int, values_EL: Floats, steps_E: Ints, before_T: Indices) -> None:
        """The same of E rows that enter all columns, among T: slices, not a scattering."""
        self._before, self._laid = before_T, len(steps_E)
        self._values_LC[:, end : end + len(steps_E)] = values_EL.T
        self._steps_XC[:, end : end + len(steps_E)] = steps_E

    def lay_nothing(self, steps_T: Ints) -> Samples:
        """Put rows behind what is kept of which none enters."""
        self._before, self._laid = np.zeros(len(steps_T), np.intp), 0
        shape_TL = (len(steps_T), self.num_columns)
        return Samples(np.zeros(shape_TL), np.zeros(shape_TL, np.bool_), steps_T)

    def lay_one(self, sample: float | None, step: int) -> None:
        """The same for one row of a window of the run; None where no sample enters."""
        self._before = _ONE_ROW
        if sample is None:
            self._laid = 0
            return
        end = self._end_of_run()
        if end == self._values_LC.shape[1]:
            self._make_room(1)
            end = self.depth
        self._laid = 1
        self._values_LC[0, end] = sample
        self._steps_XC[0, end] = step

    def lay_floats(self, samples: Sequence[float | None], steps: Sequence[int]) -> None:
        """The same for rows of a window of the run."""
        self._make_room(len(samples))
        end, before = self._end_of_run(), np.zeros(len(samples), np.intp)
        self._laid = 0
        for row, sample in enumerate(samples):
            before[row] = self._laid
            if sample is not None:
                self._values_LC[0, end + self._laid] = sample
                self._steps_XC[0, end + self._laid] = steps[row]
                self._laid += 1
        self._before = before

    def _end_of_run(self) -> int:
        assert isinstance(self._ends, int), "a single column's number is that of all"
        return self._ends

    def opening(self, samples: Samples) -> Samples:
        """Of these samples, those that a window still takes which stays as it is once full."""
        arrived_TL = np.cumsum(samples.enter_TL, axis=0, dtype=np.intp)
        has_room_TL = arrived_TL <= self.size - self._filled
        return Samples(samples.values_TL, samples.enter_TL & has_room_TL, samples.steps_T)

    def keep(self) -> None:
        """The block that was laid belongs to the history from now on."""
        self._ends = self._ends + self._laid
        filled = self._filled + self._laid
        if isinstance(filled, int):
            self._filled = min(filled, self.depth)
        else:
            self._filled = _one_for_all(np.minimum(filled, self.depth))
        self._laid, self._before = 0, _NO_ROW

    def _before_at(self, rows_K: Indices, columns_K: Indices) -> Indices:
        return self._before[rows_K] if self._before.ndim == 1 else self._before[rows_K, columns_K]

    def filled_at(self, rows_K: Indices, columns_K: Indices) -> Indices:
        """How many samples the windows hold that end before these rows of the laid block."""
        before_K = self._before_at(rows_K, columns_K)
        return np.asarray(np.minimum(_at(self._filled, columns_K) + before_K, self.size))

    def windows_at(self, rows_K: Indices, columns_K: Indices) -> Kept:
        """(K, N) the samples before these rows, newest last, NaN where there are too few; as wide
        as they are kept. Not to be written to."""
        before_K = self._before_at(rows_K, columns_K)
        starts_K = _at(self._ends, columns_K) + before_K - self.size
        is_one_row = len(rows_K) == self.num_columns and rows_K[0] == rows_K[-1]
        if is_one_row and (starts_K == starts_K[0]).all():  # all columns: a slice, not a gathering
            return self._values_LC[:, starts_K[0] : starts_K[0] + self.size]
        windows: Any = sliding_window_view(self._values_LC, self.size, axis=1)
        return np.asarray(windows[columns_K, starts_K])

    def newest_steps_at(self, rows_K: Indices, columns_K: Indices) -> Ints:
        """(K,) the step of the newest sample before these rows, NO_STEP where there is none."""
        places_K = _at(self._ends, columns_K) + self._before_at(rows_K, columns_K) - 1
        steps_LC = np.broadcast_to(self._steps_XC, self._values_LC.shape)
        return np.asarray(steps_LC[columns_K, places_K])

    @property
    def is_full(self) -> bool:
        """Whether a window that stays as it is once full takes no more, in any column."""
        if isinstance(self._filled, int):
            return self._filled >= self.size
        return bool((self._filled >= self.size).all())

    def num_held(self, row: int) -> int:
        """How many samples the window of the run holds before this row of those laid last."""
        assert isinstance(self._filled, int), "a single column's number is that of all"
        return min(self._filled + self._num_before(row), self.size)

    def window(self, row: int, num_held: int) -> Floats:
        """(1, F) these samples, newest last."""
        end = self._end_of_run() + self._num_before(row)
        return self._values_LC[:1, end - num_held : end].astype(np.float64, copy=False)

    def newest_step(self, row: int) -> int:
        """The step of the newest of them, NO_STEP where there is none."""
        return int(self._steps_XC[0, self._end_of_run() + self._num_before(row) - 1])

    def _num_before(self, row: int) -> int:
        return int(self._before[row]) if row else 0

    def forget(self, first_step: int) -> None:
        """Drop the samples of this step and later ones: a rollback has undone them."""
        values_LD, steps_XD = self.kept()
        dropped_X = (steps_XD >= first_step).sum(axis=1)
        sources_XD = np.arange(self.depth) - dropped_X[:, np.newaxis]
        is_gap_XD = sources_XD < 0
        sources_XD = np.maximum(sources_XD, 0)
        sources_LD = np.broadcast_to(sources_XD, values_LD.shape)
        values_LD = np.take_along_axis(values_LD, sources_LD, axis=1)
        steps_XD = np.take_along_axis(steps_XD, sources_XD, axis=1)
        np.copyto(values_LD, np.nan, where=is_gap_XD)
        np.copyto(steps_XD, NO_STEP, where=is_gap_XD)
        self._take(values_LD, steps_XD)

    def kept(self) -> tuple[Kept, Ints]:
        """(L, D) values and (X, D) steps, newest last: all that there is to save."""
        self._ends = _one_for_all(self._ends)
        if isinstance(self._ends, int):  # a slice, not a gathering
            kept = slice(self._ends - self.depth, self._ends)
            return self._values_LC[:, kept].copy(), _joined(self._steps_XC[:, kept].copy())
        places_LD = self._ends[:, np.newaxis] + np.arange(-self.depth, 0)
        return (
            np.take_along_axis(self._values_LC, places_LD, axis=1),
            _joined(np.take_along_axis(self._steps_XC, places_LD, axis=1)),
        )

    @classmethod
    def of(cls, values_LD: Kept, steps_XD: Ints) -> "History":
        """The history that `kept` described."""
        num_columns, depth = values_LD.shape
        history = cls(depth // 2, num_columns)
        history._take(values_LD, steps_XD)
        return history

    def reordered(self, sources: list[int | None]) -> "History":
        """The same history for other columns: each takes an old one's samples, or none."""
        old_values_LD, old_steps_XD = self.kept()
        old_steps_LD = np.broadcast_to(old_steps_XD, old_values_LD.shape)
        values_LD = np.full((len(sources), self.depth), np.nan, old_values_LD.dtype)
        steps_LD = np.repeat(_no_steps(self.depth), len(sources), axis=0)
        for column, source in enumerate(sources):
            if source is not None:
                values_LD[column] = old_values_LD[source]
                steps_LD[column] = old_steps_LD[source]
        return History.of(values_LD, steps_LD)

    def _take(self, values_LD: Kept, steps_XD: Ints) -> None:
        """Hold this, and nothing else."""
        self.settled.clear()
        self._put(values_LD, _joined(steps_XD))
        self._filled = _one_for_all((self._steps_XC != NO_STEP).sum(axis=1))
        self._laid, self._before = 0, _NO_ROW

    def _make_room(self, num_rows: int) -> None:
        """Where a column would run over the buffer's end, move all that is kept to its start."""
        last = self._ends if isinstance(self._ends, int) else int(self._ends.max())
        if last + num_rows <= self._values_LC.shape[1]:
            return
        values_LD, steps_XD = self.kept()
        room = max(num_rows, self.depth // 4, _LEAST_ROOM)
        self._put(
            np.concatenate([values_LD, np.empty((len(values_LD), room), values_LD.dtype)], axis=1),
            np.concatenate([steps_XD, np.empty((len(steps_XD), room), np.int64)], axis=1),
        )

    def _put(self, values_LC: Kept, steps_XC: Ints) -> None:
        """Buffers that begin with what is kept."""
        self._values_LC, self._steps_XC = values_LC, steps_XC
        self._ends = self.depth


def _one_for_all(counts: Counts) -> Counts:
    """One number where all columns have the same."""
    if isinstance(counts, int) or not (counts.size and (counts == counts[0]).all()):
        return counts
    return int(counts[0])


def _at(counts: Counts, columns_K: Indices) -> Counts:
    return counts if isinstance(counts, int) else counts[columns_K]


def _no_steps(depth: int) -> Ints:
    return np.full((1, depth), NO_STEP, np.int64)


def _joined(steps_XD: Ints) -> Ints:
    """One row of steps for all columns, where they have the same."""
    are_same = len(steps_XD) > 1 and (steps_XD == steps_XD[:1]).all()
    return steps_XD[:1].copy() if are_same else steps_XD
