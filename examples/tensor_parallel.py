"""Train with tensor parallelism: the two layers of a block are split over the ranks, and watched.

    torchrun --standalone --nproc-per-node 4 examples/tensor_parallel.py --steps 200
    torchrun --standalone --nproc-per-node 4 examples/tensor_parallel.py --data 2   # and FSDP2

Runs on CPUs with gloo, on GPUs with NCCL. What is split is measured where it lies, and arrives
as one tensor; what every rank has a copy of is counted once. RUNWATCH_URL and RUNWATCH_TOKEN
say where the service is; without them the run is written to ./runwatch-spool.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional
from torch.optim import AdamW

from runwatch_hooks import attach

BATCH, WIDTH, HIDDEN, NUM_CLASSES = 32, 64, 128, 10


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH)
        self.head = nn.Linear(WIDTH, NUM_CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = functional.gelu(self.up(self.norm(inputs)))
        logits: torch.Tensor = self.head(inputs + self.down(hidden))
        return logits


def main() -> None:
    arguments = parse_arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    num_groups = arguments.data
    mesh = init_device_mesh(
        device,
        (num_groups, dist.get_world_size() // num_groups),
        mesh_dim_names=("data", "tensor"),
    )
    torch.manual_seed(0)
    model = Classifier().to(device)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    parallelize_module(model, mesh["tensor"], dict(plan))
    if num_groups > 1:
        fully_shard(model, mesh=mesh["data"])
    # Not `foreach`: that takes no list in which plain and split tensors, or two meshes, are mixed.
    optimizer = AdamW(model.parameters(), lr=1e-3, foreach=False)
    # The ranks of one tensor group work on the same batch.
    generator = torch.Generator().manual_seed(1 + mesh["data"].get_local_rank())

    with attach(model, optimizer, run="tensor-parallel", config=vars(arguments)) as watch:
        for _ in watch.steps(arguments.steps):
            inputs = torch.randn(BATCH, WIDTH, generator=generator).to(device)
            targets = inputs[:, :NUM_CLASSES].argmax(dim=1)
            loss = functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            watch.step(loss, tokens=len(inputs))
    if dist.get_rank() == 0:
        print(f"run {watch.run_id}: {watch.next_step} steps on {dist.get_world_size()} ranks")
    dist.destroy_process_group()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="train with tensor parallelism, watched")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--data", type=int, default=1, help="groups that share the data")
    return parser.parse_args()


if __name__ == "__main__":
    main()
