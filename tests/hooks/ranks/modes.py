"""Trains a small model in each way of spreading it over four processes, and holds what the hook
says of its layers beside what the full tensors say. Run by torchrun; rank 0 writes JSON.

    torchrun --nproc-per-node 4 modes.py RESULTS
"""

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from tests.hooks.ranks.leaving import leave
from tests.hooks.recorder import RecordingLine
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from runwatch.nonfinite import is_absent
from runwatch.vocabulary import RunId
from runwatch_hooks.attaching.wiring import Objects, build_watch
from runwatch_hooks.ranks import SharedAttempt, find_world, join_team
from runwatch_hooks.settings.environment import read_environment
from runwatch_hooks.settings.options import Options
from runwatch_hooks.step.row import Row

STEPS = 3
NUM_RANKS = 4


class Net(nn.Module):
    """Sizes that four ranks cannot share evenly: 7, 5, 3 and 1."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 7)
        self.norm = nn.LayerNorm(7)
        self.third = nn.Linear(7, 3)
        self.last = nn.Linear(3, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.relu(self.second(torch.relu(self.first(inputs))))
        return cast("Tensor", self.last(torch.relu(self.third(self.norm(hidden)))))


def ddp() -> nn.Module:
    return DistributedDataParallel(Net())


def fsdp() -> nn.Module:
    model = Net()
    fully_shard(model, mesh=init_device_mesh("cpu", (NUM_RANKS,)))
    return model


def fsdp_offload() -> nn.Module:
    model = Net()
    policy = CPUOffloadPolicy(pin_memory=False)
    fully_shard(model, mesh=init_device_mesh("cpu", (NUM_RANKS,)), offload_policy=policy)
    return model


def hsdp() -> nn.Module:
    model = Net()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    fully_shard(model, mesh=mesh)
    return model


def tensor_parallel() -> nn.Module:
    return parallelize_module(Net(), init_device_mesh("cpu", (NUM_RANKS,)), _plan())


def two_dimensions() -> nn.Module:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    model = parallelize_module(Net(), mesh["tensor"], _plan())
    fully_shard(model, mesh=mesh["data"])
    return model


MODES: tuple[Callable[[], nn.Module], ...] = (
    ddp,
    fsdp,
    fsdp_offload,
    hsdp,
    tensor_parallel,
    two_dimensions,
)


def _plan() -> dict[str, ParallelStyle]:
    return {"first": ColwiseParallel(), "second": RowwiseParallel()}


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    results = {make.__name__: run_mode(make) for make in MODES}
    results["broken"] = run_mode(fsdp, break_at=STEPS - 1)
    if dist.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(results))
    leave()


def run_mode(make: Callable[[], nn.Module], break_at: int | None = None) -> dict[str, Any]:
    """What was expected and measured of each step, and of each rank's rows their names."""
    torch.manual_seed(0)
    model = make()
    is_alike = make not in (tensor_parallel, two_dimensions)
    """Whether foreach operations can take all parameters together: all plain, or on one mesh."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=is_alike)
    line = RecordingLine()
    world = find_world(read_environment())
    proposed = SharedAttempt(RunId("0" * 26), "0" * 26, time.time())
    team = join_team(world, proposed, is_run_given=True)
    assert team is not None
    objects = Objects(modules={"": model}, optimizers=(optimizer,))
    watch = build_watch(objects, Options(allow=()), line.open, team)
    torch.manual_seed(1 + dist.get_rank() if is_alike else 1)  # tensor parallel: the same data
    expected: list[dict[str, dict[str, float]]] = []
    for step in range(STEPS):
        loss = model(torch.randn(4, 6)).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        if step == break_at and dist.get_rank() == 1:
            _spoil(cast("nn.Linear", model.second).weight)
        facts = {name: _of_gradient(one) for name, one in _named(model)}
        before = {name: _full(one.detach()).clone() for name, one in _named(model)}
        if is_alike:
            clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        for name, one in _named(model):
            facts[name]["param_norm"] = _norm(before[name])
            moved = _norm(_full(one.detach()).double() - before[name].double())
            if facts[name]["param_norm"]:
                facts[name]["update_ratio"] = moved / facts[name]["param_norm"]
        expected.append(facts)
        watch.step(loss)
    watch.finish()
    assert watch.num_faults == 0
    rows: list[Any] = [None] * NUM_RANKS
    dist.all_gather_object(rows, [_of_row(row) for row in line.rows])
    return {"expected": expected, "rows": rows, "events": [e.detail for e in line.events]}


def _spoil(parameter: Tensor) -> None:
    grad = parameter.grad
    assert isinstance(grad, DTensor)
    grad._local_tensor.view(-1)[0] = float("nan")  # pyright: ignore[reportPrivateUsage]


def _named(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name.removeprefix("module."), one) for name, one in model.named_parameters()]


def _full(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _norm(tensor: Tensor) -> float:
    return math.sqrt(tensor.double().square().sum().item())


def _of_gradient(parameter: nn.Parameter) -> dict[str, float]:
    assert parameter.grad is not None
    grad = _full(parameter.grad).double()
    finite = grad[grad.isfinite()]
    return {
        "grad_norm": _norm(finite),
        "grad_absmax": float(grad.abs().max()),
        "nonfinite": float(grad.numel() - finite.numel()),
        "zero_frac": float(torch.eq(grad, 0).double().mean()),
    }


def _of_row(row: Row) -> dict[str, Any]:
    """A row as JSON: stats by layer, what was not recorded left out."""
    layers: dict[str, dict[str, float]] = {}
    if row.layout is not None and row.stats is not None:
        stats = row.stats.reshape(len(row.layout.stats), -1)
        for column, layer in enumerate(row.layout.layer_names):
            layers[layer] = {
                name: float(stats[place, column])
                for place, name in enumerate(row.layout.stats)
                if not is_absent(stats[place, [column]])[0]
            }
    return {"step": row.step, "metrics": dict(row.metrics), "layers": layers}


if __name__ == "__main__":
    main()
