"""Train with FSDP2: every rank holds a part of each parameter, and is watched.

    torchrun --standalone --nproc-per-node 4 examples/fsdp.py --steps 200
    torchrun --standalone --nproc-per-node 4 examples/fsdp.py --replicas 2   # 2 x 2: HSDP
    torchrun --standalone --nproc-per-node 4 examples/fsdp.py --offload      # parts on the CPU

Runs on CPUs with gloo, on GPUs with NCCL. The norms that arrive are those of whole tensors: each
rank reads the parts that lie on it, and rank 0 joins what the others found, off the training
thread and without a collective. RUNWATCH_URL and RUNWATCH_TOKEN say where the service is;
without them the run is written to ./runwatch-spool.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW

from runwatch_hooks import attach

BATCH, WIDTH, NUM_CLASSES = 32, 64, 10


class Classifier(nn.Module):
    """Blocks that FSDP gathers one at a time; a head of ten rows, which four ranks share as
    3, 3, 3 and 1."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, NUM_CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            inputs = inputs + functional.gelu(block(inputs))
        logits: torch.Tensor = self.head(inputs)
        return logits


def main() -> None:
    arguments = parse_arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    torch.manual_seed(0)
    model = shard(Classifier().to(device), make_mesh(device, arguments.replicas), arguments.offload)
    optimizer = AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1 + dist.get_rank())

    with attach(model, optimizer, run="fsdp", config=vars(arguments)) as watch:
        for _ in watch.steps(arguments.steps):
            inputs = torch.randn(BATCH, WIDTH, generator=generator).to(device)
            targets = inputs[:, :NUM_CLASSES].argmax(dim=1)
            loss = functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            watch.step(loss, tokens=len(inputs))
    if dist.get_rank() == 0:
        print(f"run {watch.run_id}: {watch.next_step} steps on {dist.get_world_size()} ranks")
    dist.destroy_process_group()


def make_mesh(device: str, replicas: int) -> DeviceMesh:
    """One dimension to shard over, or before it one of replicas."""
    num_ranks = dist.get_world_size()
    if replicas == 1:
        return init_device_mesh(device, (num_ranks,))
    return init_device_mesh(
        device, (replicas, num_ranks // replicas), mesh_dim_names=("replicate", "shard")
    )


def shard(model: Classifier, mesh: DeviceMesh, offload: bool) -> Classifier:
    policy = CPUOffloadPolicy(pin_memory=torch.cuda.is_available()) if offload else OffloadPolicy()
    for block in model.blocks:
        fully_shard(block, mesh=mesh, offload_policy=policy)
    fully_shard(model, mesh=mesh, offload_policy=policy)
    return model


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="train with FSDP2, watched")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--replicas", type=int, default=1, help="copies of the sharded model")
    parser.add_argument("--offload", action="store_true", help="keep parameters on the CPU")
    return parser.parse_args()


if __name__ == "__main__":
    main()
