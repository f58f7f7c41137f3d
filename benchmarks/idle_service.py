"""What does a service cost that has little to do, on a machine where it runs beside a trainer?

A real `runwatch serve` with the built-in rules on: without a run; with a run that has begun, made a
step and says nothing; with the same and a frame of one step each second, of 148 layers; with that
run ended. Of each the CPU time of the service's process over some seconds, and how often its
threads were woken. On Linux.

    python -m benchmarks.idle_service --seconds 30
    python -m benchmarks.idle_service --database postgresql://runwatch@127.0.0.1/empty
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.frame_cost import cpu_s
from benchmarks.harness import machine, markdown_table, running_service
from benchmarks.ingest import Load, Trainer, make_bodies

_LAYERS: Final = 148
_WARM_UP: Final = 15
_SETTLE_S: Final = 3.0


def main() -> None:
    options = _options()
    print(f"\n{machine()}")
    rows: list[tuple[str, ...]] = []

    def row(name: str, wait: Callable[[float], None]) -> None:
        time.sleep(_SETTLE_S)
        rows.append((name, *measure(pid, options.seconds, wait)))

    load = Load(clients=1, frames=_WARM_UP + int(options.seconds) + 2, steps=1, layers=_LAYERS)
    with running_service(options.database) as service:
        pid = service.process.pid
        row("no run", time.sleep)
        trainer = Trainer(service.url, service.process.admin_key)
        attempt = trainer.open(load.layout)
        bodies = iter(make_bodies(load, attempt, seed=0))
        for _ in range(_WARM_UP):
            trainer.post(next(bodies))
        row("a run that says nothing", time.sleep)

        def send(seconds: float) -> None:
            started_at = time.monotonic()
            for place in range(int(seconds)):
                trainer.post(next(bodies))
                time.sleep(max(started_at + place + 1 - time.monotonic(), 0.0))

        row("a run that sends a frame each second", send)
        trainer.close(attempt)
        row("a run that has ended", time.sleep)
    print(f"\nThe service's process, over {options.seconds:g} s each\n")
    print(markdown_table(("with", "ms of CPU time a second", "wake-ups a second"), rows))


def measure(pid: int, seconds: float, wait: Callable[[float], None]) -> tuple[str, str]:
    began_s, began_wakes, started_at = cpu_s(pid), wake_ups(pid), time.monotonic()
    wait(seconds)
    took_s = time.monotonic() - started_at
    cost_s, num_wakes = cpu_s(pid) - began_s, wake_ups(pid) - began_wakes
    return f"{1000 * cost_s / took_s:.1f}", f"{num_wakes / took_s:.0f}"


def wake_ups(pid: int) -> int:
    """How often its threads have gone to sleep, since they began."""
    return sum(
        int(line.split()[1])
        for status in Path(f"/proc/{pid}/task").glob("*/status")
        for line in status.read_text().splitlines()
        if line.startswith("voluntary_ctxt_switches")
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="of each")
    parser.add_argument("--database", help="URL of an empty PostgreSQL; by default SQLite")
    return parser.parse_args()


if __name__ == "__main__":
    main()
