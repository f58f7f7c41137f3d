"""The demo's training: healthy, spoiled once, and the same with the hook as without it."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import watched
from torch import nn

from runwatch.commands import Command, Rollback
from runwatch.vocabulary import CommandId
from runwatch_hooks import attach
from runwatch_hooks.demo import training as module
from runwatch_hooks.demo.training import (
    Fault,
    Setting,
    Training,
    train_alone,
    train_watched,
)
from runwatch_hooks.settings.options import Options
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


def test_a_spoiled_training_takes_its_time_until_it_has_gone_back(
    line: RecordingLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses_s: list[float] = []
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=pauses_s.append))
    setting = Setting(steps=12)
    training = Training(setting, CORPUS, Fault(step=5))
    options = Options(allow=("rollback",), snapshot_every=1, good_after=1)
    watch = watched(training.model, training.optimizer, line=line, options=options)

    def tell(step: int, loss: float, report: StepReport | None) -> None:
        if step == 7 and not line.receipts:  # carried out as the next step ends
            back = Rollback(to_step=6)
            line.commands = [Command(CommandId("c1"), back, attempt=1, expires_at=math.inf)]

    train_watched(training, setting, tell, watch)
    watch.finish()

    assert [receipt.state for receipt in line.receipts] == ["applied"]
    assert len(pauses_s) == 3  # after the steps 5, 6 and 7


def _losses(setting: Setting, fault: Fault | None) -> list[float]:
    losses: list[float] = []
    train_alone(Training(setting, CORPUS, fault), setting, lambda _, loss, __: losses.append(loss))
    return losses
