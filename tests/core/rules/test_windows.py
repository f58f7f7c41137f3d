"""A window's samples, against lists: in whatever way rows came, were taken back or put in order."""

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwatch.rules.windows import NO_STEP, History, Samples

SIZE = 3


class Deed(Enum):
    LAY = "lay a block behind a draft of it, and keep it"
    FORGET = "take back some steps"
    REORDER = "put the layers in another order"
    LOAD = "save and load"


@dataclass
class Lists:
    """What a window holds of each layer: (step, value) pairs, oldest first."""

    columns: list[list[tuple[int, float]]] = field(default_factory=lambda: [[], [], []])

    def add(self, samples: Samples) -> None:
        for row, step in enumerate(samples.steps_T.tolist()):
            for column, pairs in enumerate(self.columns):
                if samples.enter_TL[row, column]:
                    pairs.append((step, float(samples.values_TL[row, column])))
                    del pairs[: -2 * SIZE]

    def forget(self, first_step: int) -> None:
        self.columns = [[one for one in pairs if one[0] < first_step] for pairs in self.columns]


def samples_of(first_step: int, enters: list[list[bool]]) -> Samples:
    steps_T = np.arange(first_step, first_step + len(enters), dtype=np.int64)
    values_TL = np.add.outer(steps_T.astype(np.float64), [0.25, 0.5, 0.75])
    return Samples(values_TL, np.array(enters, np.bool_), steps_T)


def assert_holds(history: History, wanted: Lists) -> None:
    """Before a row that brings nothing."""
    history.lay_nothing(np.array([0], np.int64))
    rows_L, columns_L = np.zeros(3, np.intp), np.arange(3)
    windows = history.windows_at(rows_L, columns_L)
    filled = history.filled_at(rows_L, columns_L)
    newest = history.newest_steps_at(rows_L, columns_L)
    for column, pairs in enumerate(wanted.columns):
        held = [value for _, value in pairs[-SIZE:]]
        assert filled[column] == len(held)
        assert windows[column, SIZE - len(held) :].tolist() == held
        assert newest[column] == (pairs[-1][0] if pairs else NO_STEP)


even_row = st.booleans().map(lambda enters: [enters] * 3)
row = st.lists(st.booleans(), min_size=3, max_size=3)
blocks = st.lists(even_row, min_size=1, max_size=9) | st.lists(row, min_size=1, max_size=9)
deeds = st.lists(
    st.tuples(st.sampled_from(Deed), blocks, st.integers(0, 12), st.permutations([0, 1, 2])),
    max_size=24,
)


@pytest.mark.parametrize("is_narrow", [False, True])
@given(deeds=deeds)
def test_a_window_holds_the_newest_samples_of_each_layer(
    is_narrow: bool, deeds: list[tuple[Deed, list[list[bool]], int, list[int]]]
) -> None:
    history, lists, step = History(SIZE, 3, is_narrow=is_narrow), Lists(), 0
    for deed, enters, back, order in deeds:
        match deed:
            case Deed.LAY:
                samples = samples_of(step, enters)
                history.lay(samples_of(step, [[True] * 3] * len(enters)))
                history.lay(samples)
                history.keep()
                lists.add(samples)
                step += len(enters)
            case Deed.FORGET:
                step = max(step - back, 0)
                history.forget(step)
                lists.forget(step)
            case Deed.REORDER:
                history = history.reordered([*order])
                lists.columns = [lists.columns[source] for source in order]
            case Deed.LOAD:
                history = History.of(*history.kept())
        assert_holds(history, lists)


def test_layers_that_miss_nothing_share_their_steps_and_so_do_those_that_caught_up() -> None:
    history = History(SIZE, 3)
    shared: list[bool] = []
    for first_step, enters in ((0, [True] * 3), (10, [True, False, True]), (20, [True] * 3)):
        history.lay(samples_of(first_step, [enters] * 2 * SIZE))
        history.keep()
        shared.append(len(history.kept()[1]) == 1)

    assert shared == [True, False, True]


@pytest.mark.parametrize(("is_narrow", "num_bytes"), [(False, 8), (True, 4)])
def test_a_sample_is_kept_as_wide_as_it_came(is_narrow: bool, num_bytes: int) -> None:
    history = History(SIZE, 3, is_narrow=is_narrow)
    history.lay(samples_of(0, [[True] * 3] * 50))
    history.keep()

    values_LD, _ = history.reordered([2, 1, 0]).kept()

    assert values_LD.itemsize == num_bytes
