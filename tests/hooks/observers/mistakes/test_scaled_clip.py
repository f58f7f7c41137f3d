"""A clip of gradients that still bear the loss scale is told from one after `unscale_`, and none of
their norms is told by that scale too much."""

from collections.abc import Callable, Iterable
from functools import partial

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import watched
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Adam, Optimizer

Make = Callable[[Iterable[nn.Parameter]], Optimizer]
Touch = Callable[[nn.Module], object]
"""What a program does to gradients before the step."""

KINDS = [
    pytest.param(partial(Adam, fused=False), id="the scaler unscales"),
    pytest.param(partial(Adam, fused=True), id="the optimizer unscales"),
]


def clip(model: nn.Module, max_norm: float = 0.5) -> None:
    clip_grad_norm_(model.parameters(), max_norm)


def clip_values(model: nn.Module) -> None:
    nn.utils.clip_grad_value_(model.parameters(), 1e9)


def log_norm(model: nn.Module) -> None:
    nn.utils.get_total_norm([one.grad for one in model.parameters() if one.grad is not None])


def train(line: RecordingLine, make: Make, *, unscales: bool, touch: Touch = clip) -> None:
    model = nn.Linear(2, 1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    optimizer = make(model.parameters())
    watch = watched(model, optimizer, line=line, scalers=(scaler,))
    for _ in range(3):
        optimizer.zero_grad()
        loss: Tensor = model(torch.ones(4, 2)).sum()
        torch.autograd.backward(scaler.scale(loss))
        if unscales:
            scaler.unscale_(optimizer)
        touch(model)
        scaler.step(optimizer)
        scaler.update()
        watch.step(loss=1.0)


@pytest.mark.parametrize("make", KINDS)
def test_a_clip_before_unscaling_is_told_with_its_threshold(
    make: Make, line: RecordingLine
) -> None:
    train(line, make, unscales=False)

    # That there is a scaler, its first step tells.
    assert line.metric("scaled_clip") == [0.5, 0.5]
    assert line.metric("loss_scale") == [2.0**14] * 3


@pytest.mark.parametrize("make", KINDS)
def test_a_clip_after_unscaling_is_not(make: Make, line: RecordingLine) -> None:
    train(line, make, unscales=True)

    assert line.metric("scaled_clip") == []
    assert line.metric("clip_coef") != []


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("touch", [partial(clip, max_norm=1e9), clip_values, log_norm])
def test_norms_are_told_without_the_scale_though_it_was_there_when_they_were_asked_for(
    make: Make, touch: Touch, line: RecordingLine
) -> None:
    train(line, make, unscales=False, touch=touch)

    assert line.metric("grad_norm") == pytest.approx([48**0.5] * 3)


@pytest.mark.parametrize("make", KINDS)
def test_of_gradients_that_were_clipped_with_their_scale_what_is_left_is_told(
    make: Make, line: RecordingLine
) -> None:
    train(line, make, unscales=False)

    assert line.metric("grad_norm") == pytest.approx([0.5 / 2.0**14] * 3)
