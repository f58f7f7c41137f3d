"""An optimizer that was made after `attach`: saved and put back like the ones that were given."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from runwatch_hooks.actions import LrScale, TrainingState
from runwatch_hooks.actions.errors import StateMismatchError


class Run:
    """A model in two parts; the second is trained from some step on, by an optimizer of its own."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(self.model[0].parameters(), lr=0.01)
        ]
        self.state = TrainingState({"": self.model}, self.optimizers)
        self.lr_scale = LrScale(self.optimizers, {"": self.model}, on_new=self.state.follow)

    def unfreeze(self) -> torch.optim.Optimizer:
        self.optimizers.append(torch.optim.AdamW(self.model[1].parameters(), lr=0.1))
        return self.optimizers[-1]

    def train(self, steps: int) -> list[float]:
        losses: list[float] = []
        for _ in range(steps):
            loss = self.model(torch.randn(3, 4)).square().mean()
            self.model.zero_grad()
            loss.backward()
            for optimizer in self.optimizers:
                optimizer.step()
            losses.append(loss.item())
        return losses


@pytest.fixture
def run() -> Iterator[Run]:
    run = Run()
    yield run
    run.lr_scale.close()


def test_its_state_goes_back_with_the_rest(run: Run) -> None:
    run.train(2)
    run.unfreeze()
    run.train(3)
    captured = run.state.capture()
    losses = run.train(4)

    run.state.restore(captured.tree)

    assert run.train(4) == losses


def test_a_capture_from_before_its_first_step_finds_it_unused(run: Run) -> None:
    run.train(2)
    captured = run.state.capture()
    late = run.unfreeze()
    losses = run.train(4)

    run.state.restore(captured.tree)

    assert dict(late.state) == {}
    assert run.train(4) == losses


def test_its_rate_before_its_first_step_is_the_unscaled_one(run: Run) -> None:
    run.lr_scale.set(0.5)
    captured = run.state.capture()
    late = run.unfreeze()
    run.train(1)

    run.state.restore(captured.tree)

    assert late.param_groups[0]["lr"] == 0.1


def test_one_that_had_a_past_of_its_own_fits_no_older_capture(run: Run) -> None:
    captured = run.state.capture()
    late = run.unfreeze()
    late.state[next(run.model[1].parameters())] = {"exp_avg": torch.ones(1, 4)}
    run.state.follow(late)

    with pytest.raises(StateMismatchError, match="optimizers"):
        run.state.restore(captured.tree)
