"""Do a thousand trainers, each with a frame in ten seconds, get their acknowledgements at once?

A real `runwatch serve` with the built-in rules on. Each trainer is a run of its own over a
connection of its own that stays open; the moments at which their frames are due are spread evenly.
What counts is the time from the moment at which a frame was due, so that a service that keeps one
waiting is not spared the next. Frames are made before the clock starts.

    python -m benchmarks.trainers --trainers 1000 --every 10 --frames 6
    python -m benchmarks.trainers --database postgresql://runwatch@127.0.0.1/empty
"""

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

import urllib3
from benchmarks.harness import machine, markdown_table, quantile, running_service
from benchmarks.ingest import Load, Trainer, make_bodies

_THREADS: Final = 64
"""Requests under way at most: many times what is due within the time that is wanted."""


@dataclass(frozen=True, slots=True)
class Client:
    """A trainer, and the frames that it will send."""

    trainer: Trainer
    bodies: Sequence[bytes]

    def post(self, index: int, due_at: float) -> float:
        """Seconds from when the frame was due until it was acknowledged; infinite where it was
        not. `due_at` is by the monotonic clock."""
        try:
            self.trainer.post(self.bodies[index])
        except (RuntimeError, urllib3.exceptions.HTTPError) as error:
            print(f"a frame was not acknowledged: {error}")
            return float("inf")
        return time.monotonic() - due_at


def open_client(url: str, key: str, load: Load, seed: int) -> Client:
    """With its run and attempt open and its layout registered."""
    trainer = Trainer(url, key)
    return Client(trainer, make_bodies(load, trainer.open(load.layout), seed))


def drive(clients: Sequence[Client], num_frames: int, every_s: float) -> list[float]:
    """Every frame of every client when it is due; what each took, in seconds."""
    started_at = time.monotonic()
    with ThreadPoolExecutor(_THREADS) as threads:
        waiting: list[Future[float]] = []
        for turn in range(num_frames * len(clients)):
            due_at = started_at + every_s * turn / len(clients)
            time.sleep(max(due_at - time.monotonic(), 0.0))
            frame, client = divmod(turn, len(clients))
            waiting.append(threads.submit(clients[client].post, frame, due_at))
        return [one.result() for one in waiting]


def main() -> None:
    options = _options()
    load = Load(clients=1, frames=options.frames, steps=options.steps, layers=options.layers)
    print(f"\n{machine()}")
    with running_service(options.database) as service, ThreadPoolExecutor(_THREADS) as threads:
        come = partial(open_client, service.url, service.process.admin_key, load)
        clients = list(threads.map(come, range(options.trainers)))
        took_s = drive(clients, options.frames, options.every)
    rows = [
        ("all frames", *_figures(took_s)),
        ("without each trainer's first", *_figures(took_s[options.trainers :])),
    ]
    print(
        f"\n{options.trainers} trainers, a frame in {options.every:g} s each, of {options.steps} "
        f"steps and {options.layers} layers; from when it was due to its acknowledgement\n"
    )
    print(markdown_table(("of", "acknowledged", "p50", "p99", "longest"), rows))


def _figures(took_s: Sequence[float]) -> list[str]:
    """Of some frames: how many were acknowledged, and how long that took."""
    took_ms = [1000 * seconds for seconds in took_s if seconds != float("inf")]
    times_ms = (quantile(took_ms, 0.5), quantile(took_ms, 0.99), max(took_ms))
    return [f"{len(took_ms)} of {len(took_s)}", *(f"{time_ms:.0f} ms" for time_ms in times_ms)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trainers", type=int, default=1000)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two frames")
    parser.add_argument("--frames", type=int, default=6, help="of each trainer")
    parser.add_argument("--steps", type=int, default=10, help="of each frame")
    parser.add_argument("--layers", type=int, default=100)
    parser.add_argument("--database", help="URL of an empty PostgreSQL; by default SQLite")
    return parser.parse_args()


if __name__ == "__main__":
    main()
