"""A job of several ranks under DDP, for torchrun; each rank writes what it trained, to the bit.

    torchrun --nproc-per-node 4 tests/end_to_end/ranks_program.py --out FOLDER --fault-at 100

Each rank draws its own batches and its own dropout. The fault is a batch of NaN on one rank,
once: the second time round it is not there. With `--slow-from STEP` each step from there on lasts
a twentieth of a second longer until the first command has shown, so that one that is slow to come
still finds the job at its work.
"""

import argparse
import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from runwatch_hooks import attach

WIDTH = 32
FAULTY_RANK = 2
PAUSE_S = 0.05


def main() -> None:
    arguments = parse()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    model = nn.Sequential(
        nn.Linear(WIDTH, 64), nn.ReLU(), nn.Dropout(0.2), nn.BatchNorm1d(64), nn.Linear(64, 1)
    )
    # With it DDP keeps its first buckets: a resumed job that made them anew after its first step
    # would sum gradients in another order for that step, and differ by a last bit of its own.
    replica = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)
    torch.manual_seed(100 + rank)  # each rank drops out what it likes
    faults = {arguments.fault_at}
    trained: list[dict[str, object]] = []
    is_told = False

    def batch(step: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(step * 1000 + rank)
        x = torch.randn(8, WIDTH, generator=generator)
        y = x[:, :1].tanh()
        if rank == FAULTY_RANK and step in faults:
            faults.remove(step)
            x = x * float("nan")
        return x, y

    with attach(
        replica,
        optimizer,
        run="ranks",
        scheduler=scheduler,
        checkpoints=arguments.out / "checkpoints" if arguments.checkpoints else None,
        snapshot_every=10,
        allow=("checkpoint", "lower_lr", "rollback", "stop"),
    ) as watch:
        if arguments.checkpoints:
            watch.resume()
        for step in watch.steps(arguments.steps):
            x, y = batch(step)
            optimizer.zero_grad()
            loss = (replica(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            scheduler.step()
            report = watch.step(loss.detach())
            is_told |= report.rolled_back_to is not None or report.lr_scale != 1.0
            if step >= arguments.slow_from and not is_told:
                time.sleep(PAUSE_S)
            trained.append(
                {
                    "step": step,
                    "loss": loss.item().hex(),
                    "back_to": report.rolled_back_to,
                    "lr_scale": report.lr_scale,
                    "stop": report.stop,
                }
            )
            (arguments.out / f"progress-{rank}").write_text(str(len(trained)))
    told = {
        "trained": trained,
        "parameters": fingerprint(dict(model.named_parameters())),
        "state": fingerprint(model.state_dict()),
    }
    (arguments.out / f"rank-{rank}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Of every bit."""
    digest = hashlib.sha256()
    for tensor in tensors.values():
        digest.update(tensor.detach().numpy().tobytes())
    return digest.hexdigest()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a folder that is there")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--fault-at", type=int, default=-1)
    parser.add_argument("--slow-from", type=int, default=10**9, metavar="STEP")
    parser.add_argument("--checkpoints", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
