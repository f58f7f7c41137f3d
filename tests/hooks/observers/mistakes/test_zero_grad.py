"""A missing `zero_grad` is told from every way to clear gradients, and from accumulation."""

import copy
import io
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import watched
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Optimizer

from runwatch_hooks.observers.mistakes.zero_grad import SAME_FOR
from runwatch_hooks.statistics import readback
from runwatch_hooks.watch import Watch

Clear = Callable[[nn.Module, Optimizer], object]


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))


def to_none(model: nn.Module, optimizer: Optimizer) -> None:
    optimizer.zero_grad()


def in_place(model: nn.Module, optimizer: Optimizer) -> None:
    optimizer.zero_grad(set_to_none=False)


def by_the_model(model: nn.Module, optimizer: Optimizer) -> None:
    model.zero_grad(set_to_none=False)


def by_hand(model: nn.Module, optimizer: Optimizer) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_(0.0)


def past_the_count(model: nn.Module, optimizer: Optimizer) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.data.zero_()


def forget_by_hand(model: nn.Module, optimizer: Optimizer) -> None:
    for parameter in model.parameters():
        parameter.grad = None


def train(
    model: nn.Module,
    optimizer: Optimizer,
    watch: Watch,
    steps: int,
    clear: Clear | None,
    micro_batches: int = 1,
) -> None:
    for _ in range(steps):
        if clear is not None:
            clear(model, optimizer)
        for _ in range(micro_batches):
            model(torch.ones(4, 2)).sum().backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        watch.step(loss=1.0)


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_steps_by_gradients_that_nobody_cleared_are_told(
    line: RecordingLine, micro_batches: int
) -> None:
    model = network()
    optimizer = SGD(model.parameters(), 1e-3)
    watch = watched(model, optimizer, line=line)
    train(model, optimizer, watch, 30, None, micro_batches)
    train(model, optimizer, watch, 2, to_none)

    told = line.metric("kept_gradients")
    assert told == [1.0] * (30 - SAME_FOR - 1) + [0.0, 0.0]


@pytest.mark.parametrize(
    "clear", [to_none, in_place, by_the_model, by_hand, past_the_count, forget_by_hand]
)
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_gradients_that_are_cleared_in_any_way_are_healthy(
    line: RecordingLine, clear: Clear, micro_batches: int
) -> None:
    model = network()
    optimizer = SGD(model.parameters(), 1e-3)
    watch = watched(model, optimizer, line=line)
    train(model, optimizer, watch, 150, clear, micro_batches)

    assert len(line.rows) == 150
    assert line.metric("kept_gradients") == []


def test_what_another_optimizer_s_backward_leaves_behind_and_is_cleared_is_healthy(
    line: RecordingLine,
) -> None:
    """As of a GAN whose judge does not detach what the generator made."""
    maker, judge = network(), nn.Linear(1, 1)
    making, judging = SGD(maker.parameters(), 1e-3), SGD(judge.parameters(), 1e-3)
    watch = watched(nn.ModuleList([maker, judge]), making, judging, line=line)
    for _ in range(100):
        judging.zero_grad(set_to_none=False)
        judge(maker(torch.ones(4, 2))).sum().backward()
        judging.step()
        making.zero_grad(set_to_none=False)
        judge(maker(torch.ones(4, 2))).sum().backward()
        making.step()
        watch.step(loss=1.0)

    assert len(line.rows) == 100
    assert line.metric("kept_gradients") == []


def test_a_zero_grad_that_is_dropped_late_is_told(line: RecordingLine) -> None:
    model = network()
    optimizer = SGD(model.parameters(), 1e-3)
    watch = watched(model, optimizer, line=line)
    train(model, optimizer, watch, 90, in_place)
    train(model, optimizer, watch, 80, None)

    assert line.metric("kept_gradients")[-2:] == [1.0, 1.0]


def test_sparse_gradients_that_nobody_cleared_are_told(line: RecordingLine) -> None:
    model = nn.Embedding(5, 2, sparse=True)
    optimizer = SGD(model.parameters(), 1e-3)
    watch = watched(model, optimizer, line=line)
    for step in range(30):
        model(torch.tensor([step % 2])).sum().backward()
        optimizer.step()
        watch.step(loss=1.0)

    assert line.metric("kept_gradients") == [1.0] * (30 - SAME_FOR - 1)


def test_sparse_gradients_that_are_cleared_are_healthy(line: RecordingLine) -> None:
    model = nn.Embedding(5, 2, sparse=True)
    optimizer = SGD(model.parameters(), 1e-3)
    watch = watched(model, optimizer, line=line)
    for step in range(100):
        optimizer.zero_grad(set_to_none=step % 40 < 20)
        model(torch.tensor([step % 2])).sum().backward()
        optimizer.step()
        watch.step(loss=1.0)

    assert len(line.rows) == 100
    assert line.metric("kept_gradients") == []


def test_optimizers_that_step_within_the_backward_pass_by_kept_gradients_are_told(
    line: RecordingLine,
) -> None:
    model = nn.Linear(2, 1, bias=False)
    optimizer = SGD(model.parameters(), 1e-3)
    watch = watched(model, optimizer, line=line)

    def step(parameter: nn.Parameter) -> None:
        optimizer.step()

    cast(Any, model.weight).register_post_accumulate_grad_hook(step)
    for _ in range(30):
        model(torch.ones(4, 2)).sum().backward()
        watch.step(loss=1.0)

    assert line.metric("kept_gradients")[-2:] == [1.0, 1.0]


class Late:
    """A mark that an accelerator which is behind has not passed yet."""

    def __init__(self) -> None:
        self.has_come = False

    def set(self, device: torch.device) -> "Late":
        return self

    def query(self) -> bool:
        return self.has_come


def test_what_an_accelerator_has_yet_to_tell_is_told_once_it_has(
    line: RecordingLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Late()
    monkeypatch.setattr(readback, "set_mark", late.set)
    model = network()
    optimizer = SGD(model.parameters(), 1e-3)
    watch = watched(model, optimizer, line=line)
    train(model, optimizer, watch, SAME_FOR + 20, None)
    assert line.metric("kept_gradients") == []
    late.has_come = True
    train(model, optimizer, watch, 2, None)

    assert line.metric("kept_gradients") == [1.0, 1.0]


def test_a_model_that_is_looked_at_can_be_copied_and_is_left_as_it_was(line: RecordingLine) -> None:
    model = network()
    optimizer = SGD(model.parameters(), 1e-3)
    watch = watched(model, optimizer, line=line)
    train(model, optimizer, watch, SAME_FOR + 2, None)
    torch.save(model, io.BytesIO())
    twin = copy.deepcopy(model)
    watch.finish()

    for one in [*model.parameters(), *twin.parameters()]:
        assert not getattr(one, "_post_accumulate_grad_hooks")  # noqa: B009
        assert not getattr(one, "_backward_hooks")  # noqa: B009
