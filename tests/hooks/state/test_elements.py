"""Tensors that cannot simply be written to: each goes back all the same, and none is torn apart."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves parts of its own interface without types)

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.init import ones_

from runwatch_hooks.state import TrainingState
from runwatch_hooks.state.outcomes import StateMismatchError
from runwatch_hooks.state.tree import is_same


def holding(**buffers: Tensor) -> nn.Linear:
    module = nn.Linear(2, 2)
    for name, buffer in buffers.items():
        module.register_buffer(name, buffer)
    return module


def test_an_expanded_buffer_stays_one_element() -> None:
    scale = torch.ones(1).expand(3)
    module = holding(scale=scale)
    state = TrainingState({"model": module}, [])
    captured = state.capture()
    scale[:1].mul_(5)

    state.restore(captured.tree)

    assert module.scale is scale
    assert (scale.tolist(), scale.stride()) == ([1.0] * 3, (0,))


def test_a_buffer_that_was_expanded_since_gets_elements_of_its_own() -> None:
    module = holding(scale=torch.tensor([1.0, 2.0, 3.0]))
    state = TrainingState({"model": module}, [])
    captured = state.capture()
    module.scale = torch.zeros(1).expand(3)

    state.restore(captured.tree)

    assert module.scale.tolist() == [1.0, 2.0, 3.0]


def test_parameters_that_are_views_of_one_buffer_stay_views() -> None:
    module = nn.Module()
    flat = torch.arange(6.0)
    rows, whole = nn.Parameter(flat[:4].view(2, 2)), nn.Parameter(flat.view(3, 2))
    module.register_buffer("flat", flat)
    module.register_parameter("rows", rows)
    module.register_parameter("whole", whole)
    state = TrainingState({"model": module}, [])
    captured = state.capture()
    with torch.no_grad():
        whole.fill_(9)

    state.restore(captured.tree)

    assert module.flat is flat
    assert flat.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert rows.data_ptr() == whole.data_ptr() == flat.data_ptr()


READ_ONLY = """
import mmap, sys, warnings
import torch
from torch import nn
from runwatch_hooks.state import TrainingState

warnings.simplefilter("ignore")
with open(sys.argv[1], "rb") as file:
    table = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
module = nn.Linear(2, 2)
module.register_buffer("table", torch.frombuffer(table, dtype=torch.float32))
state = TrainingState({"model": module}, [])
captured = state.capture()
wanted = module.weight.tolist()
nn.init.ones_(module.weight)
state.restore(captured.tree)
assert module.weight.tolist() == wanted
"""


def test_memory_that_nobody_may_write_to_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "table.bin"
    file.write_bytes(bytes(4096))

    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(file)], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


UNUSUAL: dict[str, Callable[[], Tensor]] = {
    "coordinates": lambda: torch.eye(3).to_sparse(),
    "rows": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    "conjugated": lambda: torch.tensor([1 + 2j]).conj(),
    "eight bits": lambda: torch.tensor([0.5, -0.0]).to(torch.float8_e4m3fn),
    "empty": lambda: torch.empty(0, 3),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:torch.quantize", "ignore:.*[Qq]uantiz")
@pytest.mark.parametrize("name", UNUSUAL)
def test_a_model_with_an_unusual_buffer_goes_back(name: str) -> None:
    module = holding(table=UNUSUAL[name]())
    state = TrainingState({"model": module}, [])
    captured = state.capture()
    wanted = module.weight.tolist()
    ones_(module.weight)

    state.restore(captured.tree)

    assert captured.is_finite
    assert (module.weight.tolist(), str(module.table)) == (wanted, str(UNUSUAL[name]()))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
def test_what_has_no_numbers_to_read_is_no_reason_not_to_be_watched() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    module = holding(meta=torch.empty(3, device="meta"), nested=nested)
    module.norm = nn.LazyBatchNorm1d()

    TrainingState({"model": module}, [])


def test_a_parameter_of_inference_mode_is_refused_before_anything_changes() -> None:
    with torch.inference_mode():
        frozen = nn.Linear(2, 2).requires_grad_(False)
    trained = nn.Linear(2, 2)
    module = nn.Sequential(trained, frozen)
    state = TrainingState({"model": module}, [])
    captured = state.capture()
    ones_(trained.weight)

    with pytest.raises(StateMismatchError, match=r"model\.1\.weight: .*inference tensor"):
        state.restore(captured.tree)

    assert trained.weight.tolist() == [[1.0] * 2] * 2


def test_the_sign_of_zero_is_a_difference() -> None:
    assert not is_same(torch.tensor(0.0), torch.tensor(-0.0))
    assert is_same(torch.tensor(float("nan")), torch.tensor(float("nan")))
