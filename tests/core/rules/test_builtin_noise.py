"""The built-in rules on runs that are noisy and well, and on one that is not."""

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.core.rules.builtin_pack import pack

from runwatch.alerts import AlertState
from runwatch.rules import Evaluator, Rows

NUM_STEPS, NUM_LAYERS, FAULT = 1200, 40, 500


def training(
    seed: int, factor_T: NDArray[np.float64], rise_T: NDArray[np.float64] | None = None
) -> Rows:
    """A loss that falls and gradients that scatter: a typical step is within a factor of two.
    Gradients times a factor are a fault, and so is what the loss rises by."""
    rng = np.random.default_rng(seed)
    steps_T = np.arange(NUM_STEPS, dtype=np.int64)
    loss_T = 2.0 + 8.0 * np.exp(-steps_T / 150) + rng.normal(0.0, 0.05, NUM_STEPS)
    loss_T += 0.0 if rise_T is None else rise_T
    norm_T = (1.0 + 4.0 * np.exp(-steps_T / 80)) * rng.lognormal(0.0, 0.25, NUM_STEPS) * factor_T
    layers_TL = norm_T[:, np.newaxis] * rng.lognormal(0.0, 0.3, (NUM_STEPS, NUM_LAYERS)) / 6
    layers_TL *= np.logspace(-2, 0, NUM_LAYERS)
    stats_TSL = np.stack([layers_TL, np.zeros_like(layers_TL)], axis=1)
    return Rows(
        steps=steps_T,
        times=np.linspace(0.0, 0.1 * NUM_STEPS, NUM_STEPS),
        metric_names=("loss", "grad_norm"),
        metrics=np.column_stack([loss_T, norm_T]),
        layer_names=tuple(f"layer{index}" for index in range(NUM_LAYERS)),
        stat_names=("grad_norm", "nonfinite"),
        stats=stats_TSL.astype(np.float32),
    )


def fired(rows: Rows) -> list[tuple[str, int]]:
    transitions = Evaluator(pack()).observe(rows)
    return [(told.rule, told.step) for told in transitions if told.state is AlertState.FIRING]


@pytest.mark.parametrize("seed", range(5))
def test_noise_that_is_healthy_alarms_nobody(seed: int) -> None:
    assert fired(training(seed, np.ones(NUM_STEPS))) == []


@pytest.mark.parametrize("seed", range(5))
def test_gradients_ten_times_as_large_warn_at_that_very_step_and_page_nobody(seed: int) -> None:
    factor_T = np.ones(NUM_STEPS)
    factor_T[FAULT] = 10.0

    all_fired = fired(training(seed, factor_T))

    assert ("GradientSpike", FAULT) in all_fired
    assert "GradientExplosion" not in {name for name, _ in all_fired}


@pytest.mark.parametrize("seed", range(5))
def test_when_the_loss_follows_a_gradient_spike_it_is_an_explosion(seed: int) -> None:
    factor_T, rise_T = np.ones(NUM_STEPS), np.zeros(NUM_STEPS)
    factor_T[FAULT : FAULT + 6] = 10.0
    rise_T[FAULT + 2 : FAULT + 20] = 1.5

    assert ("GradientExplosion", FAULT + 3) in fired(training(seed, factor_T, rise_T))


def of_two_tasks(seed: int) -> Rows:
    """A fifth of the rows are of another task: loss and gradients forty times as large."""
    rng = np.random.default_rng(seed)
    is_other_T = rng.random(NUM_STEPS) < 0.2
    rows = training(seed, np.where(is_other_T, 40.0, 1.0))
    loss = rows.metric_names.index("loss")
    rows.metrics[:, loss] *= np.where(is_other_T, 40.0, 1.0)
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_tasks_of_different_size_in_turn_page_nobody(seed: int) -> None:
    named = {name for name, _ in fired(of_two_tasks(seed))}

    assert not named & {"GradientExplosion", "LossOscillation", "LossDivergence"}


@pytest.mark.parametrize("seed", range(3))
def test_changes_that_grow_with_the_loss_are_no_swing(seed: int) -> None:
    """A critic's error grows with the rewards, and its noise with it."""
    rng = np.random.default_rng(seed)
    growth_T = 0.05 + 8.0 * (1.0 - 0.5 ** (np.arange(NUM_STEPS) / 250))
    rows = training(seed, np.ones(NUM_STEPS))
    rows.metrics[:, 0] = growth_T * rng.lognormal(0.0, 0.3, NUM_STEPS)

    assert "LossOscillation" not in {name for name, _ in fired(rows)}


@pytest.mark.parametrize("seed", range(3))
def test_a_loss_with_heavy_tails_is_no_spike_if_each_is_told_four_times(seed: int) -> None:
    heavy_T = np.exp(0.3 * np.random.default_rng(seed).standard_t(3, NUM_STEPS // 4))
    rows = training(seed, np.ones(NUM_STEPS))
    rows.metrics[:, 0] = np.repeat(heavy_T, 4)

    assert "LossSpike" not in {name for name, _ in fired(rows)}
