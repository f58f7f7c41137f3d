"""A layer whose group has a learning rate of 0 is not stuck: nobody asked it to move."""

import math

import torch
from tests.hooks.recorder import RecordingLine, of_layer
from tests.hooks.tiny import watched
from torch import nn

RESTING = "1.weight"


def trained(line: RecordingLine, *rates: float | torch.Tensor) -> None:
    """One layer a group; a step at the rates."""
    model = nn.Sequential(*(nn.Linear(3, 3, bias=False) for _ in rates))
    groups = [
        {"params": layer.parameters(), "lr": rate} for layer, rate in zip(model, rates, strict=True)
    ]
    optimizer = torch.optim.SGD(groups)
    watch = watched(model, optimizer, line=line)
    torch.autograd.backward(model(torch.randn(4, 3)).square().sum())
    optimizer.step()
    watch.step(1.0)
    watch.finish()


def test_a_layer_at_rest_has_no_update_beside_others_that_move(line: RecordingLine) -> None:
    trained(line, 0.1, 0.0, 0.1, 0.1)

    row = line.rows[0]
    assert math.isnan(of_layer(row, "update_ratio", RESTING))
    assert of_layer(row, "update_ratio", "0.weight") > 0.0
    assert of_layer(row, "grad_norm", RESTING) > 0.0
    assert row.metrics["lr.1"] == 0.0


def test_where_no_rate_moves_anything_it_is_told(line: RecordingLine) -> None:
    trained(line, 0.0, 0.0)

    assert of_layer(line.rows[0], "update_ratio", RESTING) == 0.0


def test_a_rate_that_is_a_tensor_is_not_asked(line: RecordingLine) -> None:
    trained(line, 0.1, torch.tensor(0.0))

    assert of_layer(line.rows[0], "update_ratio", RESTING) == 0.0
