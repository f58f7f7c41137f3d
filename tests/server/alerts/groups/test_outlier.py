"""A run among the others of its group: far worse, or within what they and chance explain."""

import numpy as np
import pytest
from numpy.typing import NDArray

from runwatch_server.alerts.groups.outlier import compare


def course(level: float, *, noise: float = 0.02, seed: int = 1) -> NDArray[np.float64]:
    return level + np.random.default_rng(seed).normal(0.0, noise, 128)


def others(*levels: float) -> list[NDArray[np.float64]]:
    return [course(level, seed=10 + index) for index, level in enumerate(levels)]


def is_far_worse(own: NDArray[np.float64], group: list[NDArray[np.float64]]) -> bool | None:
    found = compare(own, group)
    return None if found is None else found.is_far_worse


def test_a_run_far_above_the_others_is_far_worse() -> None:
    assert is_far_worse(course(2.0), others(1.0, 1.02, 0.98, 1.01)) is True


@pytest.mark.parametrize("level", [0.2, 0.9, 1.05, 1.15])
def test_a_run_below_or_near_them_is_not(level: float) -> None:
    assert is_far_worse(course(level), others(1.0, 1.02, 0.98, 1.01)) is False


def test_a_wide_sweep_has_no_outlier() -> None:
    assert is_far_worse(course(5.0), others(1.0, 2.0, 3.0, 4.5, 2.5)) is False


def test_one_bad_run_among_the_others_does_not_hide_the_next() -> None:
    assert is_far_worse(course(2.0), others(1.0, 1.02, 0.98, 1.01, 9.0)) is True


def test_a_loss_that_scatters_widely_is_not_far_off_by_less() -> None:
    assert is_far_worse(course(1.6, noise=1.0), others(1.0, 1.02, 0.98, 1.01)) is False


def test_three_others_are_too_few() -> None:
    assert is_far_worse(course(9.0), others(1.0, 1.0, 1.0)) is None


def test_a_run_or_others_without_finite_losses_say_nothing() -> None:
    nothing = np.full(128, np.nan)

    assert is_far_worse(nothing, others(1.0, 1.0, 1.0, 1.0)) is None
    assert is_far_worse(course(9.0), [*others(1.0, 1.0, 1.0), nothing]) is None
