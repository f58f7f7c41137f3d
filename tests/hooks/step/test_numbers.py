"""Numbers that may lie on an accelerator."""

import math

import pytest
import torch

from runwatch_hooks.step.numbers import lesser


@pytest.mark.parametrize(("earlier", "later"), [(math.nan, 0.5), (0.5, math.nan), (0.5, 1.0)])
def test_of_two_numbers_the_lesser_stands_or_a_nan_wherever_they_lie(
    earlier: float, later: float
) -> None:
    wanted = 0.5 if earlier + later == 1.5 else math.nan

    assert lesser(earlier, later) == pytest.approx(wanted, nan_ok=True)
    kept = lesser(torch.tensor(earlier), torch.tensor(later))
    assert float(kept) == pytest.approx(wanted, nan_ok=True)
