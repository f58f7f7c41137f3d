"""A resume that forgot the optimizer's state is told from one that has nothing to restore."""

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.step.loops import train
from tests.hooks.tiny import watched
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from runwatch_hooks.run import LiveWatch


def began(optimizer: Optimizer, model: nn.Module, line: RecordingLine, step: int) -> LiveWatch:
    watch = watched(model, optimizer, line=line)
    if step:
        watch.load_state_dict({**watch.state_dict(), "next_step": step})
    return watch


def test_an_optimizer_without_its_state_is_told_in_the_first_rows_after_a_resume(
    line: RecordingLine,
) -> None:
    model = nn.Linear(2, 1)
    optimizer = AdamW(model.parameters())
    train(model, optimizer, began(optimizer, model, line, step=500), 70)

    assert line.metric("fresh_optimizers") == [1.0] * 64 + [0.0]


@pytest.mark.parametrize("is_restored", [True, False])
def test_a_restored_state_and_a_beginning_are_healthy(
    line: RecordingLine, *, is_restored: bool
) -> None:
    model = nn.Linear(2, 1)
    optimizer = AdamW(model.parameters())
    if is_restored:
        model(torch.ones(4, 2)).sum().backward()
        optimizer.step()
    step = 500 if is_restored else 0
    train(model, optimizer, began(optimizer, model, line, step), 3)

    assert len(line.rows) == 3
    assert line.metric("fresh_optimizers") == []


def test_an_optimizer_that_keeps_no_state_has_none_to_lose(line: RecordingLine) -> None:
    model = nn.Linear(2, 1)
    optimizer = SGD(model.parameters(), 1e-3)
    train(model, optimizer, began(optimizer, model, line, step=500), 3)

    assert len(line.rows) == 3
    assert line.metric("fresh_optimizers") == []
