"""Optimizers that hand their steps on to others, and those that step the same layers in turn."""

from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest
import torch
from tests.hooks.recorder import RecordingLine, of_layer
from tests.hooks.step.loops import train
from tests.hooks.tiny import watched
from torch import nn
from torch.optim import SGD, Adam, Optimizer


class Outer(Optimizer):
    """Has groups of its own, as `ZeroRedundancyOptimizer`, and others step in its stead."""

    def __init__(self, parameters: Iterable[nn.Parameter], *inner: Optimizer) -> None:
        super().__init__(list(parameters), {"lr": 9.0})
        self.inner = inner
        self.before_inner: Callable[[], object] = lambda: None

    def step(self, closure: Any = None) -> Any:
        self.before_inner()
        for one in self.inner:
            one.step()


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(2, 1)


def test_a_step_that_is_handed_on_is_one_step_and_no_news(line: RecordingLine) -> None:
    model = linear()
    optimizer = Outer(model.parameters(), SGD(model.parameters(), lr=0.5))
    watch = watched(model, optimizer, line=line)
    train(model, optimizer, watch, 3)

    assert line.metric("optimizer_steps") == [1.0] * 3
    assert line.metric("lr") == [0.5] * 3
    assert "lr.1" not in line.rows[-1].metrics
    assert "watch_changed" not in line.kinds()


def test_its_gradients_are_those_that_the_inner_one_steps_by(line: RecordingLine) -> None:
    model = linear()
    optimizer = Outer(model.parameters(), SGD(model.parameters(), lr=0.5))
    optimizer.before_inner = lambda: setattr(model.bias, "grad", torch.full((1,), 3.0))
    watch = watched(model, optimizer, line=line)
    train(model, optimizer, watch, 3)

    assert [of_layer(row, "grad_absmax", "bias") for row in line.rows] == [3.0] * 3


def test_to_hand_it_on_to_several_is_one_step(line: RecordingLine) -> None:
    model = linear()
    inner = SGD([model.weight], lr=0.5), SGD([model.bias], lr=0.25)
    optimizer = Outer(model.parameters(), *inner)
    watch = watched(model, optimizer, line=line)
    train(model, optimizer, watch, 3)

    assert line.metric("optimizer_steps") == [1.0] * 3
    assert line.metric("lr") == [0.5] * 3
    assert line.metric("lr.1") == [0.25] * 3


def test_one_that_hands_on_a_part_is_watched_with_the_rest(line: RecordingLine) -> None:
    model = linear()
    optimizer = Outer(model.parameters(), SGD([model.weight], lr=0.5))
    optimizer.before_inner = lambda: model.bias.data.add_(1.0)
    watch = watched(model, optimizer, line=line)
    train(model, optimizer, watch, 3)

    assert line.metric("optimizer_steps") == [1.0] * 3
    assert [row.metrics["layers_with_grad"] for row in line.rows] == [2.0] * 3
    assert "watch_changed" not in line.kinds()


def test_a_handed_step_that_raised_leaves_the_next_one_whole(line: RecordingLine) -> None:
    model = linear()
    inner = SGD(model.parameters(), lr=0.5)
    optimizer = Outer(model.parameters(), inner)
    watch = watched(model, optimizer, line=line)
    optimizer.before_inner = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        train(model, optimizer, watch, 1)
    train(model, cast("Optimizer", inner), watch, 2)

    assert line.metric("optimizer_steps") == [1.0] * 2


def test_two_that_step_the_same_parameters_in_turn_have_each_a_rate_and_one_is_news(
    line: RecordingLine,
) -> None:
    model = linear()
    given, later = Adam(model.parameters(), lr=0.5), SGD(model.parameters(), lr=0.25)
    watch = watched(model, given, line=line)
    for optimizer in (given, later) * 3:
        train(model, optimizer, watch, 1)

    assert line.kinds().count("watch_changed") == 1
    # The later one might have come to stay: it stands in the given one's place until that returns.
    assert line.metric("lr") == [0.5, 0.25, 0.5, 0.5]
    assert line.metric("lr.1") == [0.25, 0.25]
    assert line.metric("alternating") == []
    watch.finish()
