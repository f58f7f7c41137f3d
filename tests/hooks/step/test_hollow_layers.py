"""Of some tensors no number can be read, as of those around other tensors: other layers are."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# (torch leaves this tensor of its own tests without types)

import math
from collections.abc import Callable

import pytest
import torch
from tests.hooks.recorder import RecordingLine, of_layer
from tests.hooks.tiny import watched
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.testing._internal.two_tensor import TwoTensor  # as torchao's lie in memory: two in one


def doubled(tensor: Tensor) -> Tensor:
    return TwoTensor(tensor.clone(), tensor.clone())  # type: ignore[no-untyped-call]


def train(line: RecordingLine, num_steps: int, clip: Callable[[nn.Module], object]) -> None:
    """A layer of such a tensor, and one that is plain."""
    wrapped, plain = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    wrapped.weight = nn.Parameter(doubled(wrapped.weight.detach()))
    model = nn.Sequential(wrapped, plain)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = watched(model, optimizer, line=line)
    for _ in range(num_steps):
        wrapped.weight.grad = doubled(torch.ones(3, 3))
        plain.weight.grad = torch.ones(3, 3)
        clip(model)
        optimizer.step()
        watch.step(1.0)
    watch.finish()
    assert watch.num_faults == 0


def test_a_wrapped_tensor_is_named_and_all_others_are_measured(line: RecordingLine) -> None:
    train(line, 2, lambda model: None)

    assert [of_layer(row, "grad_norm", "1.weight") for row in line.rows] == [3.0, 3.0]
    assert all(row.layout is not None and len(row.layout.layers) == 1 for row in line.rows)
    (told,) = [event.detail["what"] for event in line.events if event.kind == "unwatched"]
    assert told == (
        "layers whose tensors cannot be read, such as quantised ones, are not measured: 0.weight"
    )


def test_a_clip_of_all_is_read_before_it_and_told(line: RecordingLine) -> None:
    train(line, 1, lambda model: clip_grad_norm_(model.parameters(), 1.0))

    assert of_layer(line.rows[0], "grad_norm", "1.weight") == 3.0
    assert math.isclose(line.rows[0].metrics["clip_coef"], 18**-0.5, rel_tol=1e-4)


def expect_named(unreadable: nn.Parameter, line: RecordingLine) -> None:
    """Beside a layer that is plain, and measured."""
    model = nn.ParameterDict({"rows": unreadable, "bias": nn.Parameter(torch.zeros(3))})
    optimizer = torch.optim.SGD([model["bias"]], lr=0.1)
    watch = watched(model, optimizer, line=line)
    model["bias"].grad = torch.ones(3)
    optimizer.step()
    watch.step(1.0)
    watch.finish()

    assert watch.num_faults == 0
    assert math.isclose(of_layer(line.rows[0], "grad_norm", "bias"), 3**0.5, rel_tol=1e-6)
    assert "unwatched" in line.kinds()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_which_has_no_shape_is_named(line: RecordingLine) -> None:
    rows = torch.nested.as_nested_tensor([torch.randn(2, 3), torch.randn(4, 3)])
    expect_named(nn.Parameter(rows), line)


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has it since 2.8")
def test_a_parameter_of_a_type_that_torch_cannot_convert_is_named(line: RecordingLine) -> None:
    packed = torch.zeros(3, 3, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    expect_named(nn.Parameter(packed), line)
