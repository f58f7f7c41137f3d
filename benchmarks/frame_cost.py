"""What does a frame cost a service, by the number of steps that travel in it?

A real `runwatch serve` with the built-in rules on, and one trainer of 100 layers whose frames come
one after another, spaced so that the service has nothing to do in between. What counts is the CPU
time that the service's process spends, its idle time's share taken off; frames of each size take
turns, in services of their own. On Linux.

    python -m benchmarks.frame_cost --frames 200 --every 0.2
"""

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Final

from benchmarks.harness import machine, markdown_table, running_service
from benchmarks.ingest import Load, Trainer, make_bodies

STEPS_A_FRAME: Final = (1, 3, 10)
_WARM_UP: Final = 20
_IDLE_S: Final = 5.0
_SETTLE_S: Final = 2.0


def main() -> None:
    options = _options()
    print(f"\n{machine()}")
    costs_s: dict[int, list[float]] = {steps: [] for steps in STEPS_A_FRAME}
    for _ in range(options.rounds):
        for steps in STEPS_A_FRAME:
            costs_s[steps].append(measure(steps, options.frames, options.every))
    rows = [
        (steps, f"{1000 * cost_s:.1f}", f"{1000 * cost_s / steps:.1f}")
        for steps in STEPS_A_FRAME
        for cost_s in [statistics.median(costs_s[steps])]
    ]
    print(f"\nCPU time of the service, {options.frames} frames, one each {options.every:g} s\n")
    print(markdown_table(("steps in a frame", "ms a frame", "ms a step"), rows))


def measure(steps: int, num_frames: int, every_s: float) -> float:
    """Seconds of CPU time that a frame costs."""
    load = Load(clients=1, frames=_WARM_UP + num_frames, steps=steps, layers=100)
    with running_service() as service:
        trainer = Trainer(service.url, service.process.admin_key)
        bodies = make_bodies(load, trainer.open(load.layout), seed=0)
        for body in bodies[:_WARM_UP]:
            trainer.post(body)
        time.sleep(_SETTLE_S)
        began_s = cpu_s(service.process.pid)
        time.sleep(_IDLE_S)
        idle_share = (cpu_s(service.process.pid) - began_s) / _IDLE_S
        began_s, started_at = cpu_s(service.process.pid), time.monotonic()
        for place, body in enumerate(bodies[_WARM_UP:]):
            time.sleep(max(started_at + place * every_s - time.monotonic(), 0.0))
            trainer.post(body)
        time.sleep(_SETTLE_S)
        idle_s = idle_share * (time.monotonic() - started_at)
        return (cpu_s(service.process.pid) - began_s - idle_s) / num_frames


def cpu_s(pid: int) -> float:
    """Of a process, in user and in system mode, since it began."""
    _, _, after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    fields = after_name.split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--every", type=float, default=0.2, help="seconds from frame to frame")
    parser.add_argument("--rounds", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
