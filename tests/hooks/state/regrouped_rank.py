"""One rank of a job that trains, is stopped, and is taken up by another number of ranks."""

import hashlib
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from runwatch_hooks import attach

STEPS: Final = 4


def alone(model: nn.Module, world_size: int) -> nn.Module:
    assert world_size == 1
    return model


def ddp(model: nn.Module, world_size: int) -> nn.Module:
    return DistributedDataParallel(model)


def fsdp(model: nn.Module, world_size: int) -> nn.Module:
    fully_shard(model, mesh=init_device_mesh("cpu", (world_size,)))
    return model


def fsdp_over_tensor_parallel(model: nn.Module, world_size: int) -> nn.Module:
    """Two ranks share each layer, and as many pairs as there are share that again."""
    mesh = init_device_mesh("cpu", (world_size // 2, 2), mesh_dim_names=("data", "tensor"))
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"])
    return model


Spread = Callable[[nn.Module, int], nn.Module]
SPREADS: Final[dict[str, Spread]] = {
    spread.__name__: spread for spread in (alone, ddp, fsdp, fsdp_over_tensor_parallel)
}


def be(rank: int, world_size: int, port: int, spread: str, folder: Path, line: Connection) -> None:
    """The process's main function: says with which step it begins, and how all stands then and
    after some steps more."""
    torch.set_num_threads(1)
    os.environ |= {"RUNWATCH_SPOOL": str(folder / f"spool-{world_size}-{rank}")}
    store = PrefixStore(f"{spread}-{world_size}", TCPStore("127.0.0.1", port, is_master=False))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    torch.manual_seed(0)
    # 6 rows and 3: four ranks do not share them evenly, and one has nothing of some tensors
    model = SPREADS[spread](nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3)), world_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    watch = attach(
        model,
        optimizer,
        run="regrouped",
        checkpoints=folder / "checkpoints",
        checkpoint_every=STEPS,
    )
    begins_with = watch.resume()
    taken_up = digest(model, optimizer)
    for step in watch.steps((begins_with or 0) + STEPS):
        generator = torch.Generator().manual_seed(step)
        optimizer.zero_grad()
        model(torch.randn(4, 5, generator=generator)).square().mean().backward()
        optimizer.step()
        watch.step()
    watch.finish()
    line.send((begins_with, taken_up, digest(model, optimizer)))
    dist.barrier()
    dist.destroy_process_group()


def digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Of every bit of the whole parameters and moments."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(whole(parameter))
        state = cast("dict[str, Tensor]", optimizer.state.get(parameter, {}))
        for key in sorted(state):
            found.update(key.encode() + whole(state[key]))
    return found.hexdigest()


def whole(tensor: Tensor) -> bytes:
    full: Any = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return bytes(full.detach().contiguous().numpy().tobytes())
