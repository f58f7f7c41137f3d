"""From numbers to rows; what is urgent; how long a step took."""

import math

import numpy as np
import pytest
import torch

from runwatch.layouts import Layer, Layout
from runwatch.nonfinite import ABSENT_32, is_absent
from runwatch_hooks.statistics.totals import GRAD_NORM, NONFINITE, PARAM_NORM, STATS
from runwatch_hooks.step.open_rows import RowAssembly
from runwatch_hooks.step.row import Jumps, StepTimer
from runwatch_hooks.step.step_reading import Reading, Stage

LAYOUT = Layout(layers=(Layer("a"), Layer("b"), Layer("c")), stats=STATS)


def reading(**stats: list[float]) -> Reading:
    values = np.full((len(STATS), 3), ABSENT_32, np.float32)
    for name, numbers in stats.items():
        values[STATS.index(name)] = numbers
    return Reading(LAYOUT, {(0, 1, 2): torch.from_numpy(values)}, {}, Stage.PRESTEP)


def test_the_runs_norms_are_over_its_layers() -> None:
    assembly = RowAssembly()
    absent = float(ABSENT_32)
    assembly.add(0, 0, 1.0, {}, reading(grad_norm=[3, 4, absent], param_norm=[1, 2, 2]))
    [row] = assembly.finished()

    assert row.metrics["grad_norm"] == 5.0
    assert row.metrics["param_norm"] == 3.0
    assert row.metrics["nonfinite"] == 0.0


def test_a_norm_that_was_not_read_again_is_still_known() -> None:
    assembly = RowAssembly()
    absent = float(ABSENT_32)
    assembly.add(0, 0, 1.0, {}, reading(param_norm=[1, 2, 2]))
    assembly.add(1, 0, 2.0, {}, reading(param_norm=[absent, absent, math.sqrt(11)]))
    last = assembly.finished()[-1]

    assert last.metrics["param_norm"] == pytest.approx(4.0)


def test_the_runs_norm_does_not_hide_what_a_layers_finite_norm_leaves_out() -> None:
    assembly = RowAssembly()
    assembly.add(0, 0, 1.0, {}, reading(grad_norm=[3, 4, 0], nonfinite=[0, 2, 1]))
    [row] = assembly.finished()

    assert math.isnan(row.metrics["grad_norm"])
    assert row.metrics["nonfinite"] == 3.0
    assert row.urgent


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_the_runs_norm_is_what_the_layers_say_where_they_tell(value: float) -> None:
    assembly = RowAssembly()
    assembly.add(0, 0, 1.0, {}, reading(grad_norm=[3, value, 0], nonfinite=[0, 1, 0]))
    [row] = assembly.finished()

    assert row.metrics["grad_norm"] == pytest.approx(value, nan_ok=True)


def test_absent_stays_absent_to_the_bit() -> None:
    assembly = RowAssembly()
    assembly.add(0, 0, 1.0, {}, reading(nonfinite=[0, 0, 0]))
    [row] = assembly.finished()
    assert row.stats is not None
    stats = row.stats.reshape(len(STATS), 3)

    assert is_absent(stats[GRAD_NORM]).all()
    assert is_absent(stats[PARAM_NORM]).all()
    assert not is_absent(stats[NONFINITE]).any()


@pytest.mark.parametrize(("coefficient", "clipped"), [(1.0, 0.0), (0.5, 1.0), (math.nan, 1.0)])
def test_a_clip_by_a_nan_is_a_clip(coefficient: float, clipped: float) -> None:
    assembly = RowAssembly()
    assembly.add(0, 0, 1.0, {"clip_coef": coefficient}, Reading(None, {}, {}, None))

    assert assembly.finished()[0].metrics["clipped"] == clipped


def test_a_jump_is_urgent_and_a_steady_fall_is_not() -> None:
    jumps = Jumps()
    falling = [jumps.is_urgent({"loss": 10.0 * 0.9**step}) for step in range(60)]

    assert not any(falling)
    assert jumps.is_urgent({"loss": 50.0})


def test_no_jump_is_seen_among_the_first_steps() -> None:
    jumps = Jumps()

    assert [jumps.is_urgent({"grad_norm": value}) for value in (0.001, 1.0, 9.0)] == [False] * 3


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_always_urgent_and_never_an_average(value: float) -> None:
    jumps = Jumps()
    for _ in range(30):
        jumps.is_urgent({"loss": 1.0})

    assert jumps.is_urgent({"loss": value})
    assert not jumps.is_urgent({"loss": 1.1})


def test_the_first_step_has_no_time() -> None:
    timer = StepTimer()
    assert timer.lap(5.0) is None
    timer.begin(5.0)

    assert timer.lap(7.0) == 2.0


def test_steps_within_a_pause_are_no_part_of_it() -> None:
    timer = StepTimer()
    timer.begin(0.0)
    timer.pause(1.0)
    timer.pause(1.0)
    timer.begin(10.0)
    timer.begin(20.0)
    timer.go_on(21.0)
    timer.go_on(22.0)

    assert timer.lap(25.0) == 3.0


def test_a_pause_within_a_pause_counts_once() -> None:
    timer = StepTimer()
    timer.begin(0.0)
    timer.pause(1.0)
    timer.pause(2.0)
    timer.go_on(3.0)
    timer.go_on(5.0)

    assert timer.lap(6.0) == 2.0
