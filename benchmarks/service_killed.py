"""What does a training loop notice when its service is killed?

A small GPT is trained under a real `runwatch serve` at the lowest priority. Turns with the service
alive and turns in which it is killed (SIGKILL) after a tenth of the steps, and started again after
the turn, take each other's place. The figures are of the steps as the loop sees them, with
`watch.step` in them; a pair is one turn of each kind, in an order that changes.

    python -m benchmarks.service_killed --pairs 5
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import httpx
import torch
from benchmarks.harness import Service, machine, markdown_table, quantile, running_service
from benchmarks.hook_overhead import BATCH, LOWEST_PRIORITY, MODELS, Watched

from runwatch_hooks import attach
from runwatch_hooks.demo.training import GPT

_READY_S: Final = 180.0


class MortalService:
    """A service that can be killed, and started again where it was."""

    def __init__(self, pid: int, url: str, data_dir: Path) -> None:
        self._pid = pid
        self._url = url
        self._data_dir = data_dir
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        os.setpriority(os.PRIO_PROCESS, self._pid, LOWEST_PRIORITY)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def start(self) -> None:
        """Until it is ready."""
        port = str(urlsplit(self._url).port)
        command = ["serve", "--quiet", "--port", port, "--data-dir", str(self._data_dir)]
        self._process = subprocess.Popen(
            [
                "nice",
                "-n",
                str(LOWEST_PRIORITY),
                sys.executable,
                "-m",
                "runwatch_server.cli",
                *command,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._pid = self._process.pid
        os.setpriority(os.PRIO_PROCESS, self._pid, LOWEST_PRIORITY)
        deadline = time.monotonic() + _READY_S
        while not self._is_ready():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the service at {self._url} is not ready")
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self._url}/readyz", trust_env=False).is_success
        except httpx.HTTPError:
            return False


def turn_with_a_kill(variant: Watched, service: MortalService, num_steps: int) -> None:
    before = num_steps // 10
    variant.turn(before)
    service.kill()
    variant.turn(num_steps - before)
    second = variant.turns.pop()
    variant.turns[-1] += second
    service.start()


def measure(
    variant: Watched, service: MortalService, options: argparse.Namespace
) -> tuple[list[list[float]], list[list[float]]]:
    """The steps of the turns in peace, and of those with a kill, in seconds."""
    calm: list[list[float]] = []
    killed: list[list[float]] = []
    variant.turn(options.steps)  # warm-up
    for pair in range(options.pairs):
        for is_kill in (pair % 2 == 0, pair % 2 == 1):
            if is_kill:
                turn_with_a_kill(variant, service, options.steps)
                killed.append(variant.turns[-1])
            else:
                variant.turn(options.steps)
                calm.append(variant.turns[-1])
    return calm, killed


def stored_steps(started: Service, run_id: str) -> list[int]:
    series = f"{started.url}/api/v1/runs/{run_id}/series?metric=loss&points=10000"
    headers = {"Authorization": f"Bearer {started.process.admin_key}"}
    reply = httpx.get(series, headers=headers, trust_env=False, timeout=60)
    steps: list[int] = reply.raise_for_status().json()["steps"]
    return steps


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = GPT(MODELS["small"])
    size = (16, BATCH["small"], MODELS["small"].context + 1)
    variant = Watched(model, list(torch.randint(MODELS["small"].vocabulary, size)))
    host = machine()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="runwatch-bench-"))
        started = stack.enter_context(running_service())
        pid, data_dir = started.process.pid, started.data_dir
        mortal = stack.enter_context(MortalService(pid, started.url, data_dir))
        with attach(
            variant.model,
            variant.optimizer,
            run="bench",
            url=started.url,
            token=started.process.admin_key,
            spool=folder,
            allow=(),
        ) as variant.watch:
            calm, killed = measure(variant, mortal, options)
        trained = list(range(variant.watch.next_step))
        is_whole = stored_steps(started, variant.watch.run_id) == trained
    print(f"\n{host}; {options.threads} threads, {options.pairs} pairs of {options.steps} steps\n")
    print(report(calm, killed))
    print(f"\nsteps trained: {len(trained)}; each of them stored once: {is_whole}")


def report(calm: list[list[float]], killed: list[list[float]]) -> str:
    rows: list[tuple[str, ...]] = []
    base = [statistics.median(turn) for turn in calm]
    for name, turns in (("service alive", calm), ("service killed in mid-turn", killed)):
        steps = [step for turn in turns for step in turn]
        pairs = zip(turns, base, strict=True)
        ratio = statistics.median(statistics.median(turn) / one for turn, one in pairs)
        figures = (statistics.median(steps), quantile(steps, 0.99), max(steps))
        rows.append((name, *(f"{1000 * one:.1f}" for one in figures), f"{ratio:.3f}"))
    return markdown_table(("turns", "step, median ms", "p99", "longest", "median ratio"), rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300, help="of each turn")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
