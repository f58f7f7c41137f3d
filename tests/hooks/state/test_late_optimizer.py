"""An optimizer that was made after `attach`: saved and put back like the ones that were given."""

import gc
from collections.abc import Iterator
from typing import cast

import pytest
import torch
from torch import nn

from runwatch_hooks.state import LrScale, TrainingState
from runwatch_hooks.state.outcomes import StateMismatchError


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
        self.lr_scale.install()

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


def test_one_that_the_program_let_go_is_in_no_later_capture(run: Run) -> None:
    run.unfreeze()
    run.train(1)
    del run.optimizers[1]
    gc.collect()
    captured = run.state.capture(run.state.capture())

    assert list(run.state.optimizers) == [0]
    assert list(cast("dict[int, object]", captured.tree["optimizers"])) == [0]


def test_a_capture_of_one_that_is_gone_puts_back_the_rest_and_not_its_successor(run: Run) -> None:
    run.unfreeze()
    run.train(3)
    captured = run.state.capture()
    weights = [one.detach().clone() for one in run.model.parameters()]
    del run.optimizers[1]
    gc.collect()
    successor = run.unfreeze()
    losses = run.train(4)
    run.state.restore(captured.tree)

    assert all(map(torch.equal, run.model.parameters(), weights))
    assert dict(successor.state) == {}
    assert run.optimizers[0].state
    assert run.train(4) == losses


def test_in_a_later_life_the_first_that_was_captured_is_the_first_that_was_given(run: Run) -> None:
    for _ in range(2):
        del run.optimizers[1:]
        gc.collect()
        run.unfreeze()
        run.train(2)
    captured = run.state.capture()
    losses = run.train(3)
    run.optimizers = [torch.optim.AdamW(part.parameters()) for part in run.model]
    TrainingState({"": run.model}, run.optimizers).restore(captured.tree)

    assert list(cast("dict[int, object]", captured.tree["optimizers"])) == [0, 2]
    assert run.train(3) == losses
