"""Does the hook grow? Memory, threads and open files of a trainer over many steps.

A small network is trained with every action allowed, snapshots every 50 steps, an evaluation every
500, and a real `runwatch serve` beside it. What the process holds is read at equal distances; the
first reading, after a warm-up, is what the later ones are compared with.

    python -m benchmarks.hook_flat --steps 20000

Exit status 1: more threads or files than at first, or more memory than --allowed-mib beyond it.
"""

import argparse
import gc
import os
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import torch
from benchmarks.harness import machine, markdown_table, running_service
from torch import nn

from runwatch_hooks import Watch, attach

WARM_UP = 0.1
"""Share of the steps before the first reading: the buffers of snapshots, and the allocator's."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What the process has at a step."""

    step: int
    memory_mib: float
    num_threads: int
    num_files: int
    num_objects: int

    @classmethod
    def at(cls, step: int) -> "Holding":
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(
            step=step,
            memory_mib=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
            num_threads=threading.active_count(),
            num_files=len(os.listdir("/proc/self/fd")),
            num_objects=len(gc.get_objects()),
        )


def train(watch: Watch, model: nn.Module, optimizer: torch.optim.Optimizer, stop: int) -> None:
    for step in watch.steps(stop):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 16)).square().mean()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        watch.step(loss, tokens=64, accuracy=0.5)
        if step % 500 == 499:
            with watch.phase("eval"):
                watch.log(val_loss=loss)


def readings(num_steps: int, num_readings: int, url: str, token: str) -> list[Holding]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(8)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    first = max(int(WARM_UP * num_steps), 1)
    stops = [first + i * (num_steps - first) // num_readings for i in range(num_readings + 1)]
    with (
        tempfile.TemporaryDirectory() as spool,
        attach(
            model,
            optimizer,
            run="hook-flat",
            url=url,
            token=token,
            spool=spool,
            allow=("checkpoint", "lower_lr", "rollback", "stop"),
        ) as watch,
    ):
        found: list[Holding] = []
        for stop in stops:
            train(watch, model, optimizer, stop)
            found.append(Holding.at(watch.next_step))
    return found


def table(found: list[Holding]) -> str:
    rows = [
        (one.step, f"{one.memory_mib:.1f}", one.num_threads, one.num_files, one.num_objects)
        for one in found
    ]
    return markdown_table(("step", "memory, MiB", "threads", "files", "Python objects"), rows)


def grown(found: list[Holding], allowed_mib: float) -> list[str]:
    """What the last reading has more of than the first."""
    first, last = found[0], found[-1]
    return [
        name
        for name, is_more in (
            ("threads", last.num_threads > first.num_threads),
            ("files", last.num_files > first.num_files),
            ("memory", not last.memory_mib <= first.memory_mib + allowed_mib),
        )
        if is_more
    ]


def main() -> int:
    arguments = parse()
    print(machine())
    with running_service() as service:
        found = readings(
            arguments.steps, arguments.readings, service.url, service.process.admin_key
        )
    print(table(found))
    more = grown(found, arguments.allowed_mib)
    print(f"grown: {', '.join(more) or 'nothing'}")
    return 1 if more else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--readings", type=int, default=6)
    parser.add_argument("--allowed-mib", type=float, default=8.0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
