"""A clip of gradients that still bear the loss scale is told from one after `unscale_`."""

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

KINDS = [
    pytest.param(partial(Adam, fused=False), id="the scaler unscales"),
    pytest.param(partial(Adam, fused=True), id="the optimizer unscales"),
]


def train(line: RecordingLine, make: Make, *, unscales: bool) -> None:
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
        clip_grad_norm_(model.parameters(), 0.5)
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
