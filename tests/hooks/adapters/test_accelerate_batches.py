"""What the batches of a step under Accelerate add up to, whatever the program gives for each."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from runwatch.vocabulary import RunId
from runwatch_hooks.adapters.accelerate import Batches
from runwatch_hooks.watch import InertWatch, StepReport

pytestmark = pytest.mark.heavy  # it imports Accelerate


class Given(InertWatch):
    """Keeps what each step was given."""

    def __init__(self) -> None:
        super().__init__(RunId("run"))
        self.losses: list[float] = []
        self.tokens: list[int | None] = []

    def step(self, loss: Any = None, *, tokens: int | None = None, **metrics: Any) -> StepReport:
        self.losses.append(float(loss))
        self.tokens.append(tokens)
        return super().step(loss)


@pytest.mark.parametrize(
    ("losses", "mean"),
    [
        ([torch.tensor(1.0), torch.tensor(3.0)], 2.0),
        ([torch.tensor([1.0, 3.0]), torch.tensor([4.0, 4.0, 4.0])], 3.0),
        ([torch.tensor([1]), 3.0], 2.0),
        (["text", torch.tensor(3.0)], 3.0),
    ],
)
def test_a_steps_loss_is_the_mean_of_its_batches_in_whatever_form(
    losses: list[Any], mean: float
) -> None:
    watch = Given()
    accelerator = SimpleNamespace(sync_gradients=False)
    batches = Batches(cast(Any, accelerator), watch)
    batches.step(losses[0], tokens=None)
    accelerator.sync_gradients = True
    batches.step(losses[1], tokens=7)

    assert watch.losses == [mean]
    assert watch.tokens == [7]
