"""The built-in rules where gradients are read of some steps only: a gap is neither good nor bad."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.core.rules.builtin_pack import pack
from tests.core.rules.test_builtin_noise import NUM_LAYERS, NUM_STEPS, training

from runwatch.alerts import AlertState
from runwatch.nonfinite import ABSENT_32, ABSENT_64
from runwatch.rules import Evaluator, Rows

STATS = ("grad_norm", "nonfinite", "zero_frac", "param_norm", "update_ratio")


def thinned(rows: Rows, every: int, since: int) -> Rows:
    """As the hook sends it: the loss and the number of optimizer steps of every step; of gradients
    and weights, from a step on, every so many, with all that the hook makes of them."""
    num_steps = len(rows.steps)
    is_left_out = (np.arange(num_steps) % every > 0) & (np.arange(num_steps) >= since)
    norms = rows.stats[:, :1]
    some = np.ones_like(norms)
    stats = np.concatenate([norms, 0 * some, 0.1 * some, 30 * some, 0.001 * some], axis=1)
    stats[is_left_out] = ABSENT_32
    loss, norm = rows.metrics.T
    of_gradients = np.column_stack([norm, np.zeros(num_steps), np.full(num_steps, NUM_LAYERS)])
    of_gradients[is_left_out] = ABSENT_64
    return replace(
        rows,
        metric_names=("loss", "optimizer_steps", "grad_norm", "nonfinite", "layers_with_grad"),
        metrics=np.column_stack([loss, np.ones(num_steps), of_gradients]),
        stat_names=STATS,
        stats=stats,
    )


def fired(rows: Rows) -> list[tuple[str, int]]:
    transitions = Evaluator(pack()).observe(rows)
    return [(told.rule, told.step) for told in transitions if told.state is AlertState.FIRING]


@pytest.mark.parametrize("every", [2, 8, 64])
def test_thinning_alarms_nobody(every: int) -> None:
    assert fired(thinned(training(0, np.ones(NUM_STEPS)), every, since=200)) == []


def test_a_spike_is_told_at_the_first_step_of_it_that_was_read() -> None:
    factor_T: NDArray[np.float64] = np.ones(NUM_STEPS)
    factor_T[1084:1092] = 10.0

    told = fired(thinned(training(0, factor_T), 8, since=0))

    assert [step for rule, step in told if rule == "GradientSpike"] == [1088]


def test_a_layer_that_gets_no_gradient_any_more_is_told() -> None:
    rows = thinned(training(0, np.ones(NUM_STEPS)), 8, since=0)
    silent_since = 1096
    rows.stats[silent_since:, :, 7] = ABSENT_32
    rows.metrics[silent_since::8, 4] = NUM_LAYERS - 1

    told = [one for one in fired(rows) if one[0] == "LayersWithoutGradient"]

    assert len(told) == 1
