"""Figures of the code stay within `budgets/budgets.toml`: `python -m tests.house.budgets`."""

from dataclasses import replace

import pytest
from tests.house.budgets.measuring import measured
from tests.house.budgets.table import Budget, budgets

ALL = budgets()


@pytest.mark.parametrize("budget", ALL, ids=lambda budget: budget.name)
def test_a_figure_is_within_its_budget(budget: Budget) -> None:
    figure = measured()[budget.name]

    assert budget.holds(figure), budget.refusal(figure)


def test_every_figure_has_a_budget() -> None:
    assert set(measured()) == {budget.name for budget in ALL}


def test_a_way_has_no_tolerance_and_a_size_has_some() -> None:
    size = replace(ALL[0], today=100.0, is_way=False, is_floor=False)

    assert size.holds(103.0)
    assert not size.holds(103.5)
    assert not replace(size, is_way=True).holds(101.0)
    assert replace(size, is_floor=True).holds(97.0)
    assert not replace(size, is_floor=True).holds(96.5)
