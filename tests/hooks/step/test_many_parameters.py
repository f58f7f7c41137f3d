"""A step costs as much more as there are more parameters, however they are clipped and stepped."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import watched
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD

from runwatch.frames import MAX_METRICS

Step = Callable[[list[nn.Parameter], list[SGD]], None]


def one_optimizer_each(parameters: list[nn.Parameter], optimizers: list[SGD]) -> None:
    """As in the backward pass."""
    for parameter, optimizer in zip(parameters, optimizers, strict=True):
        parameter.grad = torch.ones(2)
        optimizer.step()


def one_clip_each(parameters: list[nn.Parameter], optimizers: list[SGD]) -> None:
    for parameter in parameters:
        clip_grad_norm_(parameter, 1.0)


def num_calls(do: Callable[[], None]) -> int:
    """Of functions, ours and others."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        do()
    finally:
        sys.setprofile(before)
    return calls


def calls_of_a_step(num_parameters: int, step: Step) -> int:
    model = nn.ParameterList(nn.Parameter(torch.ones(2)) for _ in range(num_parameters))
    parameters = list(model.parameters())
    optimizers = [SGD([one], lr=0.1) for one in parameters]
    watch = watched(model, *optimizers, line=RecordingLine())
    calls = 0
    for _ in range(3):
        for parameter in parameters:
            parameter.grad = torch.ones(2)
        calls = num_calls(lambda: step(parameters, optimizers))
        watch.step(loss=1.0)
    watch.finish()
    return calls


@pytest.mark.parametrize("step", [one_optimizer_each, one_clip_each])
def test_four_times_the_parameters_cost_four_times_as_much(step: Step) -> None:
    assert calls_of_a_step(160, step) < 4.5 * calls_of_a_step(40, step)


@pytest.mark.parametrize("has_optimizer_each", [True, False])
def test_a_group_for_each_of_many_parameters_leaves_room_in_a_row(
    has_optimizer_each: bool,
) -> None:
    model = nn.ParameterList(nn.Parameter(torch.ones(2)) for _ in range(MAX_METRICS))
    groups = [{"params": [one]} for one in model.parameters()]
    shares = [[one] for one in groups] if has_optimizer_each else [groups]
    optimizers = [SGD(one, lr=0.1) for one in shares]
    watch = watched(model, *optimizers, line=(line := RecordingLine()))
    for parameter in model.parameters():
        parameter.grad = torch.ones(2)
    for optimizer in optimizers:
        optimizer.step()
    watch.step(loss=1.0)

    rates = [name for name in line.rows[0].metrics if name == "lr" or name.startswith("lr.")]
    assert (len(rates), rates[-1]) == (128, "lr.127")
    assert [event.detail["what"] for event in line.events if event.kind == "watch_changed"] == [
        "512 parameter groups: the learning rates of the first 128 are recorded"
    ]
