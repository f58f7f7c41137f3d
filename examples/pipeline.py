"""Train a model in stages of a pipeline: each rank has layers of its own, and is watched.

    torchrun --standalone --nproc-per-node 2 examples/pipeline.py --steps 200

Every stage attaches its own part. A command is done by all of them at one step. The layers that
arrive are those of rank 0: what other stages hold is not measured, which the run says. The loss is
known to the last stage alone, which tells it to the others.
Runs on CPUs with gloo. RUNWATCH_URL and RUNWATCH_TOKEN say where the service is; without them the
run is written to ./runwatch-spool.
"""

import argparse

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn import functional
from torch.optim import AdamW

from runwatch_hooks import attach

BATCH, MICRO_BATCHES, WIDTH, NUM_BLOCKS, NUM_CLASSES = 32, 4, 32, 4, 10


class Stage(nn.Module):
    """The blocks of one rank, by the names that they have in the whole model."""

    def __init__(self, rank: int, num_stages: int) -> None:
        super().__init__()
        own = (index for index in range(NUM_BLOCKS) if index * num_stages // NUM_BLOCKS == rank)
        self.blocks = nn.ModuleDict({str(index): nn.Linear(WIDTH, WIDTH) for index in own})
        self.head = nn.Linear(WIDTH, NUM_CLASSES) if rank == num_stages - 1 else None

    def forward(self, inputs: Tensor) -> Tensor:
        for block in self.blocks.values():
            inputs = inputs + functional.gelu(block(inputs))
        return inputs if self.head is None else self.head(inputs)


def main() -> None:
    arguments = parse_arguments()
    dist.init_process_group("gloo")
    model, schedule = make_stage()
    optimizer = AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(0)  # all know each batch, and take their end of it

    with attach(model, optimizer, run="pipeline", config=vars(arguments)) as watch:
        for _ in watch.steps(arguments.steps):
            optimizer.zero_grad()
            loss = train_one(schedule, generator)
            optimizer.step()
            watch.step(loss, tokens=BATCH)
    if dist.get_rank() == 0:
        print(f"run {watch.run_id}: {watch.next_step} steps in {dist.get_world_size()} stages")
    dist.destroy_process_group()


def make_stage() -> tuple[nn.Module, ScheduleGPipe]:
    """This rank's part of the model, and the schedule of its micro-batches."""
    rank, num_stages = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = Stage(rank, num_stages)
    stage = PipelineStage(model, rank, num_stages, torch.device("cpu"))
    return model, ScheduleGPipe(stage, MICRO_BATCHES, loss_fn=functional.cross_entropy)


def train_one(schedule: ScheduleGPipe, generator: torch.Generator) -> Tensor:
    """Forward and backward of a batch; its loss, which the last stage tells to all."""
    inputs = torch.randn(BATCH, WIDTH, generator=generator)
    last = dist.get_world_size() - 1
    losses: list[Tensor] = []
    if dist.get_rank() == 0:
        schedule.step(inputs)
    elif dist.get_rank() == last:
        schedule.step(target=inputs[:, :NUM_CLASSES].argmax(dim=1), losses=losses)
    else:
        schedule.step()
    loss = torch.stack(losses).mean().detach() if losses else torch.zeros(())
    dist.broadcast(loss, last)
    return loss


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="train in stages of a pipeline, watched")
    parser.add_argument("--steps", type=int, default=200)
    return parser.parse_args()


if __name__ == "__main__":
    main()
