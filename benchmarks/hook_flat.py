"""Does the hook grow? Memory, threads and open files of a trainer over many steps.

A small network is trained with every action allowed, snapshots every 50 steps, an evaluation every
500, and a real `runwatch serve` beside it. What the process holds is read at equal distances; the
first reading, after a warm-up, is what the later ones are compared with.

    python -m benchmarks.hook_flat --steps 20000

With --url and --token a service that runs already is told instead.

Exit status 1: more threads or files than at first, or more memory than --allowed-mib beyond it.
"""

import argparse
import gc
import os
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from benchmarks.harness import machine, markdown_table, running_service
from torch import nn

from runwatch_hooks import Watch, attach

WARM_UP = 0.1
"""Share of the steps before the first reading: the buffers of snapshots, and the allocator's."""

NUM_CONNECTIONS = 2
"""Kept open to the service: the sender's and the one that waits for orders."""

SETTLING_S = 30.0
"""For how long a reading waits for what is only on its way: a connection that is being opened, or
one that was lost and is being replaced. What has leaked is still there afterwards."""


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


def num_sockets() -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode)
        except FileNotFoundError:  # closed in between: among them the listing's own
            continue
    return found


def await_connections(num_before: int) -> None:
    """A busy machine may finish the warm-up before the hook's threads have opened theirs."""
    deadline = time.monotonic() + SETTLING_S
    while num_sockets() < num_before + NUM_CONNECTIONS:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{num_sockets() - num_before} connections to the service after {SETTLING_S} s; "
                f"wanted {NUM_CONNECTIONS}"
            )
        time.sleep(0.05)


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
    num_sockets_before = num_sockets()
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
        train(watch, model, optimizer, first)
        await_connections(num_sockets_before)
        found = [Holding.at(watch.next_step)]
        for stop in stops[1:]:
            train(watch, model, optimizer, stop)
            found.append(settled(found[0], watch.next_step))
    return found


def settled(first: Holding, step: int) -> Holding:
    """A reading at `step`, after waiting for threads and files that are only passing."""
    deadline = time.monotonic() + SETTLING_S
    while True:
        found = Holding.at(step)
        has_more = found.num_threads > first.num_threads or found.num_files > first.num_files
        if not has_more or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


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
    with service_to_tell(arguments) as (url, token):
        found = readings(arguments.steps, arguments.readings, url, token)
    print(table(found))
    more = grown(found, arguments.allowed_mib)
    print(f"grown: {', '.join(more) or 'nothing'}")
    return 1 if more else 0


@contextmanager
def service_to_tell(arguments: argparse.Namespace) -> Generator[tuple[str, str]]:
    """The address and the key of the service that was named, or of one for as long as this runs."""
    if arguments.url:
        yield arguments.url, arguments.token
    else:
        with running_service() as service:
            yield service.url, service.process.admin_key


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--readings", type=int, default=6)
    parser.add_argument("--url", help="of a service that runs already")
    parser.add_argument("--token", help="that service's key")
    parser.add_argument("--allowed-mib", type=float, default=8.0)
    arguments = parser.parse_args()
    if bool(arguments.url) != bool(arguments.token):
        parser.error("--url and --token go together")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
