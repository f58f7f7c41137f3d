"""The demo's training: healthy, spoiled once, and the same with the hook as without it."""

from pathlib import Path

import pytest
import torch
from torch import nn

from runwatch_hooks import attach
from runwatch_hooks.demo.training import (
    Fault,
    Setting,
    Training,
    train_alone,
    train_watched,
)
from runwatch_hooks.watch import StepReport

CORPUS = torch.arange(1000) % 96


def test_a_fault_strikes_once_even_when_its_step_comes_again() -> None:
    weight = nn.Parameter(torch.zeros(2))
    weight.grad = torch.ones(2)
    fault = Fault(step=5)
    for step in (4, 5, 6, 5):
        fault.strike(step, [weight])
    assert weight.grad.tolist() == [10.0, 10.0]


def test_the_fault_leaves_the_steps_up_to_it_alone_and_changes_the_ones_after() -> None:
    losses = [_losses(Setting(steps=8), fault) for fault in (None, Fault(step=5))]
    assert losses[0][:6] == losses[1][:6]
    assert losses[0][6] != losses[1][6]


def test_the_hook_changes_no_bit_of_the_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUNWATCH_URL", raising=False)
    setting = Setting(steps=8)
    training = Training(setting, CORPUS, None)
    watched: list[float] = []

    def tell(step: int, loss: float, report: StepReport | None) -> None:
        assert report is not None
        assert report.step == step
        watched.append(loss)

    with attach(training.model, training.optimizer, run="demo", spool=tmp_path) as watch:
        train_watched(training, setting, tell, watch)
    assert watched == _losses(setting, None)


def _losses(setting: Setting, fault: Fault | None) -> list[float]:
    losses: list[float] = []
    train_alone(Training(setting, CORPUS, fault), setting, lambda _, loss, __: losses.append(loss))
    return losses
