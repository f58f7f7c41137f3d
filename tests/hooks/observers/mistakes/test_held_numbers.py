"""Whether a gradient holds anything, of whatever kind it is."""

import pytest
import torch
from torch import Tensor

from runwatch_hooks.observers.mistakes.zero_grad import HeldNumbers


@pytest.mark.parametrize(
    ("grad", "holds"),
    [
        (torch.zeros(3), False),
        (torch.tensor([0.0, 1e-40, 0.0]), True),
        (torch.tensor([0.0, float("nan")]), True),
        (torch.tensor([0.0, 1.0j]), True),
        (torch.zeros(10_000), False),
        (torch.ones(10_000), True),
        (torch.eye(3).to_sparse(), True),
        ((0.0 * torch.eye(3)).to_sparse(), False),
        (torch.ones(()), True),
        (torch.zeros(0), False),
    ],
)
def test_zeros_are_told_from_numbers(grad: Tensor, holds: bool) -> None:
    held = HeldNumbers()
    assert held.were_there() is None
    held.look(grad)

    assert held.were_there() is holds


def test_each_look_is_at_what_is_there_then() -> None:
    held, grad = HeldNumbers(), torch.ones(3)
    held.look(grad)
    assert held.were_there() is True
    held.look(grad.data.zero_())

    assert held.were_there() is False
