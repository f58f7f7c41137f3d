"""Layers that a program freezes are counted; those that never were trained are no layers."""

from tests.hooks.recorder import RecordingLine
from tests.hooks.step.loops import train
from tests.hooks.tiny import watched
from torch import nn
from torch.optim import SGD


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))


def test_layers_are_frozen_and_thawed(line: RecordingLine) -> None:
    model = network()
    optimizer = SGD(model.parameters(), 0.1)
    watch = watched(model, optimizer, line=line)
    train(model, optimizer, watch, 8)
    model[0].requires_grad_(False)
    train(model, optimizer, watch, 8)
    model[0].requires_grad_(True)
    train(model, optimizer, watch, 8)

    assert line.metric("layers_with_grad") == [4.0] * 8 + [2.0] * 8 + [4.0] * 8
    assert line.metric("frozen_layers") == [2.0] * 8 + [0.0] * 8


def test_a_model_that_begins_with_frozen_layers_has_frozen_none(line: RecordingLine) -> None:
    model = network()
    model[0].requires_grad_(False)
    optimizer = SGD(model.parameters(), 0.1)
    watch = watched(model, optimizer, line=line)
    train(model, optimizer, watch, 8)
    model[0].requires_grad_(True)
    train(model, optimizer, watch, 8)

    assert line.metric("layers_with_grad") == [2.0] * 8 + [4.0] * 8
    assert line.metric("frozen_layers") == []
