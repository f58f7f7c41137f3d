"""A model that is trained on in evaluation mode is told from one that is meant to."""

import pytest
from tests.hooks.recorder import RecordingLine
from tests.hooks.step.loops import train
from tests.hooks.tiny import watched
from torch import nn
from torch.optim import SGD


def network(dropout: float = 0.5) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.Dropout(dropout), nn.Linear(2, 1))


def test_steps_after_a_forgotten_train_are_told(line: RecordingLine) -> None:
    model = network()
    optimizer = SGD(model.parameters(), 0.1)
    watch = watched(model, optimizer, line=line)
    train(model, optimizer, watch, 10)
    model.eval()
    train(model, optimizer, watch, 3)
    model.train()
    train(model, optimizer, watch, 2)

    assert line.metric("eval_mode") == [1.0, 1.0, 1.0, 0.0, 0.0]
    assert ["eval_mode" in row.metrics for row in line.rows] == [False] * 10 + [True] * 5


def test_an_evaluation_between_two_steps_is_none(line: RecordingLine) -> None:
    model = network()
    optimizer = SGD(model.parameters(), 0.1)
    watch = watched(model, optimizer, line=line)
    for _ in range(12):
        model.train()
        train(model, optimizer, watch, 1)
        model.eval()
        watch.log(val_loss=1.0)

    assert len(line.rows) == 24
    assert line.metric("eval_mode") == []


def test_a_training_in_evaluation_mode_from_the_start_may_be_meant(line: RecordingLine) -> None:
    model = network().eval()
    optimizer = SGD(model.parameters(), 0.1)
    watch = watched(model, optimizer, line=line)
    train(model, optimizer, watch, 20)

    assert len(line.rows) == 20
    assert line.metric("eval_mode") == []


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(network(dropout=0.0), id="without dropout"),
        pytest.param(nn.Sequential(nn.Linear(2, 1), nn.LayerNorm(1)), id="layer normalisation"),
    ],
)
def test_of_a_model_that_computes_the_same_in_both_modes_nothing_is_told(
    model: nn.Module, line: RecordingLine
) -> None:
    optimizer = SGD(model.parameters(), 0.1)
    watch = watched(model, optimizer, line=line)
    train(model, optimizer, watch, 10)
    model.eval()
    train(model, optimizer, watch, 3)

    assert len(line.rows) == 13
    assert line.metric("eval_mode") == []


def test_batch_normalisation_that_is_frozen_late_is_meant(line: RecordingLine) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = SGD(model.parameters(), 0.1)
    watch = watched(model, optimizer, line=line)
    train(model, optimizer, watch, 10)
    model[1].eval()
    train(model, optimizer, watch, 3)

    assert len(line.rows) == 13
    assert line.metric("eval_mode") == []


def test_parts_that_still_train_in_a_model_in_evaluation_mode_are_meant(
    line: RecordingLine,
) -> None:
    model = network()
    optimizer = SGD(model.parameters(), 0.1)
    watch = watched(model, optimizer, line=line)
    train(model, optimizer, watch, 10)
    model.eval()
    model[1].train()
    train(model, optimizer, watch, 3)

    assert line.metric("eval_mode") == []
