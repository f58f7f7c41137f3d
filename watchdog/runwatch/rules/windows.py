"""The last samples of a series, for every layer at once.

Legend: T rows, L columns (layers; one for a series of the run), K points, N samples in a window,
D samples kept.

A window is counted in samples, and which rows give one differs between layers: what was not
recorded or is not finite never enters. So each column has its own end in the buffer, and a row's
window is found by how many samples of its column came before it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Indices = NDArray[np.intp]

NO_STEP = -1

# What a window of the run says of the one row that was laid: the same few arrays, never written to.
_NOT_LAID, _LAID = np.zeros(1, np.intp), np.ones(1, np.intp)
_NO_ROW, _ONE_ROW = np.zeros((0, 1), np.intp), np.zeros((1, 1), np.intp)


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

    def __init__(self, size: int, num_columns: int) -> None:
        self.size = size
        self.depth = 2 * size
        self._values_LC = np.full((num_columns, 2 * self.depth), np.nan)
        self._steps_LC = np.full((num_columns, 2 * self.depth), NO_STEP, np.int64)
        self._ends_L = np.full(num_columns, self.depth, np.intp)
        self._filled_L = np.zeros(num_columns, np.intp)
        self._before_TL = np.zeros((0, num_columns), np.intp)
        self._laid_L = np.zeros(num_columns, np.intp)
        self.settled: dict[str, Floats] = {}
        """(L,) what functions made of a window that stays as it is once full, when it was."""

    @property
    def num_columns(self) -> int:
        return len(self._ends_L)

    def lay(self, samples: Samples) -> None:
        """Put a block behind what is kept, in place of one laid before."""
        num_rows, num_columns = samples.enter_TL.shape
        self._make_room(num_rows)
        if num_rows == 1:
            self._lay_row(samples)
            return
        arrived_TL = np.cumsum(samples.enter_TL, axis=0, dtype=np.intp)
        self._before_TL = arrived_TL - samples.enter_TL
        self._laid_L = arrived_TL[-1] if num_rows else np.zeros(num_columns, np.intp)
        rows_E, columns_E = np.nonzero(samples.enter_TL)
        places_E = self._ends_L[columns_E] + self._before_TL[rows_E, columns_E]
        self._values_LC[columns_E, places_E] = samples.values_TL[rows_E, columns_E]
        self._steps_LC[columns_E, places_E] = samples.steps_T[rows_E]

    def _lay_row(self, samples: Samples) -> None:
        end = int(self._ends_L.max(initial=0))
        if samples.enter_TL.all() and (self._ends_L == end).all():  # a slice, not a scattering
            self._before_TL = np.zeros(samples.enter_TL.shape, np.intp)
            self._laid_L = np.ones(self.num_columns, np.intp)
            self._values_LC[:, end] = samples.values_TL[0]
            self._steps_LC[:, end] = samples.steps_T[0]
            return
        columns_E = np.flatnonzero(samples.enter_TL[0])
        places_E = self._ends_L[columns_E]
        self._before_TL = np.zeros(samples.enter_TL.shape, np.intp)
        self._laid_L = samples.enter_TL[0].astype(np.intp)
        self._values_LC[columns_E, places_E] = samples.values_TL[0, columns_E]
        self._steps_LC[columns_E, places_E] = samples.steps_T[0]

    def lay_nothing(self, steps_T: Ints) -> Samples:
        """Put rows behind what is kept of which none enters."""
        shape_TL = (len(steps_T), self.num_columns)
        self._before_TL = np.zeros(shape_TL, np.intp)
        self._laid_L = np.zeros(self.num_columns, np.intp)
        return Samples(np.zeros(shape_TL), np.zeros(shape_TL, np.bool_), steps_T)

    def lay_one(self, sample: float | None, step: int) -> None:
        """The same for one row of a window of the run; None where no sample enters."""
        self._before_TL = _ONE_ROW
        if sample is None:
            self._laid_L = _NOT_LAID
            return
        end = int(self._ends_L[0])
        if end == self._values_LC.shape[1]:
            self._make_room(1)
            end = self.depth
        self._laid_L = _LAID
        self._values_LC[0, end] = sample
        self._steps_LC[0, end] = step

    def opening(self, samples: Samples) -> Samples:
        """Of these samples, those that a window still takes which stays as it is once full."""
        arrived_TL = np.cumsum(samples.enter_TL, axis=0, dtype=np.intp)
        has_room_TL = arrived_TL <= self.size - self._filled_L
        return Samples(samples.values_TL, samples.enter_TL & has_room_TL, samples.steps_T)

    def keep(self) -> None:
        """The block that was laid belongs to the history from now on."""
        if self.num_columns == 1:  # of the run: numbers are cheaper than arrays of one
            if num_laid := int(self._laid_L[0]):
                self._ends_L[0] += num_laid
                self._filled_L[0] = min(int(self._filled_L[0]) + num_laid, self.depth)
            self._laid_L, self._before_TL = _NOT_LAID, _NO_ROW
            return
        self._ends_L = self._ends_L + self._laid_L
        self._filled_L = np.minimum(self._filled_L + self._laid_L, self.depth)
        self._laid_L = np.zeros_like(self._laid_L)
        self._before_TL = self._before_TL[:0]

    def filled_at(self, rows_K: Indices, columns_K: Indices) -> Indices:
        """How many samples the windows hold that end before these rows of the laid block."""
        before_K = self._before_TL[rows_K, columns_K]
        return np.asarray(np.minimum(self._filled_L[columns_K] + before_K, self.size))

    def windows_at(self, rows_K: Indices, columns_K: Indices) -> Floats:
        """(K, N) the samples before these rows, newest last, NaN where there are too few. Not to be
        written to."""
        return self._gather(self._values_LC, rows_K, columns_K)

    def newest_steps_at(self, rows_K: Indices, columns_K: Indices) -> Ints:
        """(K,) the step of the newest sample before these rows, NO_STEP where there is none."""
        places_K = self._ends_L[columns_K] + self._before_TL[rows_K, columns_K] - 1
        return np.asarray(self._steps_LC[columns_K, places_K])

    @property
    def is_full(self) -> bool:
        """Whether a window that stays as it is once full takes no more, in any column."""
        return bool((self._filled_L >= self.size).all())

    def num_held(self) -> int:
        """How many samples the window of the run holds, before what was laid last."""
        return min(int(self._filled_L[0]), self.size)

    def window(self, num_held: int) -> Floats:
        """(1, F) the samples of the window of the run, newest last."""
        end = self._ends_L[0]
        return self._values_LC[:1, end - num_held : end]

    def newest_step(self) -> int:
        """The step of the newest of them, NO_STEP where there is none."""
        return int(self._steps_LC[0, self._ends_L[0] - 1])

    def forget(self, first_step: int) -> None:
        """Drop the samples of this step and later ones: a rollback has undone them."""
        values_LD, steps_LD = self.kept()
        dropped_L = (steps_LD >= first_step).sum(axis=1)
        sources_LD = np.arange(self.depth) - dropped_L[:, np.newaxis]
        is_gap_LD = sources_LD < 0
        sources_LD = np.maximum(sources_LD, 0)
        values_LD = np.take_along_axis(values_LD, sources_LD, axis=1)
        steps_LD = np.take_along_axis(steps_LD, sources_LD, axis=1)
        values_LD[is_gap_LD] = np.nan
        steps_LD[is_gap_LD] = NO_STEP
        self._take(values_LD, steps_LD)

    def kept(self) -> tuple[Floats, Ints]:
        """(L, D) values and steps, newest last: all that there is to save."""
        last = int(self._ends_L.max(initial=self.depth))
        if (self._ends_L == last).all():  # a slice, not a gathering
            kept = slice(last - self.depth, last)
            return self._values_LC[:, kept].copy(), self._steps_LC[:, kept].copy()
        places_LD = self._ends_L[:, np.newaxis] + np.arange(-self.depth, 0)
        return (
            np.take_along_axis(self._values_LC, places_LD, axis=1),
            np.take_along_axis(self._steps_LC, places_LD, axis=1),
        )

    @classmethod
    def of(cls, values_LD: Floats, steps_LD: Ints) -> "History":
        """The history that `kept` described."""
        history = cls(values_LD.shape[1] // 2, values_LD.shape[0])
        history._take(values_LD, steps_LD)
        return history

    def reordered(self, sources: list[int | None]) -> "History":
        """The same history for other columns: each takes an old one's samples, or none."""
        fresh = History(self.size, len(sources))
        values_LD, steps_LD = fresh.kept()
        old_values_LD, old_steps_LD = self.kept()
        for column, source in enumerate(sources):
            if source is not None:
                values_LD[column] = old_values_LD[source]
                steps_LD[column] = old_steps_LD[source]
        return History.of(values_LD, steps_LD)

    def _take(self, values_LD: Floats, steps_LD: Ints) -> None:
        self.settled.clear()
        self._values_LC, self._steps_LC = values_LD, steps_LD
        self._ends_L = np.full(len(values_LD), self.depth, np.intp)
        self._filled_L = (steps_LD != NO_STEP).sum(axis=1)
        self._laid_L = np.zeros_like(self._ends_L)
        self._before_TL = self._before_TL[:0]

    def _make_room(self, num_rows: int) -> None:
        """Where a column would run over the buffer's end, move all that is kept to its start."""
        capacity = self._values_LC.shape[1]
        if self.num_columns == 0 or self._ends_L.max() + num_rows <= capacity:
            return
        values_LD, steps_LD = self.kept()
        shape_LC = (self.num_columns, max(capacity, 2 * self.depth, self.depth + 2 * num_rows))
        self._values_LC = np.full(shape_LC, np.nan)
        self._steps_LC = np.full(shape_LC, NO_STEP, np.int64)
        self._values_LC[:, : self.depth] = values_LD
        self._steps_LC[:, : self.depth] = steps_LD
        self._ends_L = np.full(self.num_columns, self.depth, np.intp)

    def _gather(self, buffer_LC: Floats, rows_K: Indices, columns_K: Indices) -> Floats:
        starts_K = self._ends_L[columns_K] + self._before_TL[rows_K, columns_K] - self.size
        is_one_row = len(rows_K) == self.num_columns and rows_K[0] == rows_K[-1]
        if is_one_row and (starts_K == starts_K[0]).all():  # all columns: a slice, not a gathering
            return buffer_LC[:, starts_K[0] : starts_K[0] + self.size]
        return np.asarray(sliding_window_view(buffer_LC, self.size, axis=1)[columns_K, starts_K])
