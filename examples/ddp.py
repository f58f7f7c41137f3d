"""Train on several processes with DistributedDataParallel, watched on all of them.

    torchrun --standalone --nproc-per-node 2 examples/ddp.py --steps 200

Runs on CPUs with gloo, on GPUs with NCCL. Rank 0 sends the layers, whose gradients are those
after the reduction; every rank sends its own loss and pace, so that a rank that breaks, drifts
or falls silent is named. RUNWATCH_URL and RUNWATCH_TOKEN say where the service is; without
them the run is written to ./runwatch-spool.

To see a rank named, break one on purpose: `--nan-loss RANK:STEP`, `--drift RANK:STEP`,
`--slow RANK:STEP` (its loader, from there on), `--noise RANK:STEP` (its labels, likewise),
`--hang RANK:STEP` (its loader, for an hour: StepOverdue names the rank after a minute, or NoStep
after five if the run had trained for less than half a minute); with `--fail RANK:STEP` under
`torchrun --max-restarts 1` the job's second life is the run's second attempt.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW

from runwatch_hooks import attach

BATCH, WIDTH, NUM_CLASSES = 32, 64, 10


def main() -> None:
    arguments = parse_arguments()
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    torch.manual_seed(0)  # the same weights on every rank
    model = DistributedDataParallel(make_model().to(device))
    optimizer = AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1 + dist.get_rank())  # and other data

    with attach(model, optimizer, run="ddp", config=vars(arguments)) as watch:
        for step in watch.steps(arguments.steps):
            inputs, targets = make_batch(generator, device)
            time.sleep(loading_s(arguments, step))
            if is_past(arguments.noise, step):
                targets = targets[torch.randperm(BATCH, generator=generator)]
            if is_at(arguments.fail, step) and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                raise RuntimeError("asked to fail")
            loss = functional.cross_entropy(model(inputs), targets)
            if is_at(arguments.nan_loss, step):
                loss = loss * float("nan")
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if is_at(arguments.drift, step):
                with torch.no_grad():
                    next(model.parameters()).mul_(1.001)
            watch.step(loss, tokens=len(inputs))
    if dist.get_rank() == 0:
        print(f"run {watch.run_id}: {watch.next_step} steps on {dist.get_world_size()} ranks")
    dist.destroy_process_group()


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, NUM_CLASSES))


def make_batch(generator: torch.Generator, device: torch.device) -> tuple[Tensor, Tensor]:
    """Inputs whose class is where their largest feature lies."""
    inputs = torch.randn(BATCH, WIDTH, generator=generator)
    targets = inputs[:, :NUM_CLASSES].argmax(dim=1)
    return inputs.to(device), targets.to(device)


def loading_s(arguments: argparse.Namespace, step: int) -> float:
    """How long, in seconds, this rank waits for its batch."""
    if is_at(arguments.hang, step):
        return 3600.0
    return 0.05 if is_past(arguments.slow, step) else 0.0


def is_at(place: str | None, step: int) -> bool:
    """Whether a place, written RANK:STEP, is this one."""
    return place == f"{dist.get_rank()}:{step}"


def is_past(place: str | None, step: int) -> bool:
    """Whether this is the rank of a place, written RANK:STEP, and it is there or beyond."""
    rank, _, since = (place or "").partition(":")
    return rank == str(dist.get_rank()) and step >= int(since)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="train with DistributedDataParallel, watched")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--nan-loss", metavar="RANK:STEP", help="make a rank's loss NaN there")
    parser.add_argument("--drift", metavar="RANK:STEP", help="change a rank's weights there")
    parser.add_argument("--slow", metavar="RANK:STEP", help="slow a rank's loader from there on")
    parser.add_argument("--noise", metavar="RANK:STEP", help="shuffle a rank's labels likewise")
    parser.add_argument("--hang", metavar="RANK:STEP", help="let a rank stand still there")
    parser.add_argument("--fail", metavar="RANK:STEP", help="raise on a rank there, once")
    return parser.parse_args()


if __name__ == "__main__":
    main()
