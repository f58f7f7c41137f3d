"""How long does a NaN of a quiet run wait while other runs send faster than they are judged?

A real `runwatch serve` with the built-in rules on. Some runs send all their frames as fast as they
are acknowledged, which leaves the service with a backlog. Meanwhile quiet runs, which have sent a
few healthy steps, send one with a NaN, one after the other. The clock starts when that frame is
sent, and stops when the API has the run's alert.

    python -m benchmarks.fair_judging --flooding 16 --frames 60 --samples 10
    python -m benchmarks.fair_judging --database postgresql://runwatch@127.0.0.1/empty
"""

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from benchmarks.harness import Service, machine, markdown_table, quantile, running_service
from benchmarks.ingest import Load, Trainer, make_bodies
from httpx import Client

from runwatch.codec import decode_frame, encode_frame

_LOOK_EVERY_S: Final = 0.02
_PATIENCE_S: Final = 300.0
_QUIET: Final = Load(clients=1, frames=4, steps=5, layers=20)


@dataclass(frozen=True, slots=True)
class Sender:
    """A run, and the frames that it has not sent yet."""

    trainer: Trainer
    bodies: Sequence[bytes]

    def send(self) -> None:
        for body in self.bodies:
            self.trainer.post(body)


def open_sender(service: Service, load: Load, seed: int) -> Sender:
    trainer = Trainer(service.url, service.process.admin_key)
    return Sender(trainer, make_bodies(load, trainer.open(load.layout), seed))


def with_nan(body: bytes) -> bytes:
    """The frame with a NaN as the first metric of its last step."""
    frame = decode_frame(body)
    metrics = np.array(frame.metrics)
    metrics[-1, 0] = np.nan
    return encode_frame(replace(frame, metrics=metrics))


def wait_for_alert(client: Client, run_id: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if client.get("/alerts", params={"run_id": run_id}).raise_for_status().json()["alerts"]:
            return
        time.sleep(_LOOK_EVERY_S)
    raise TimeoutError(f"no alert of run {run_id} within {_PATIENCE_S:.0f} s")


def measure(client: Client, quiet: Sender) -> float:
    """Seconds from sending a NaN until its alert is there."""
    started_at = time.monotonic()
    quiet.trainer.post(with_nan(quiet.bodies[-1]))
    wait_for_alert(client, quiet.trainer.run_id)
    return time.monotonic() - started_at


def main() -> None:
    options = _options()
    load = Load(clients=1, frames=options.frames, steps=options.steps, layers=options.layers)
    print(f"\n{machine()}")
    with running_service(options.database) as service, service.client() as client:
        quiet = [open_sender(service, _QUIET, seed) for seed in range(options.samples)]
        for one in quiet:
            Sender(one.trainer, one.bodies[:-1]).send()
        floods = [open_sender(service, load, 1000 + seed) for seed in range(options.flooding)]
        with ThreadPoolExecutor(options.flooding) as threads:
            sending = [threads.submit(flood.send) for flood in floods]
            for sent in sending:
                sent.result()
        took_s = [measure(client, one) for one in quiet]
    rows = [
        ("p50", f"{quantile(took_s, 0.5):.2f} s"),
        ("longest", f"{max(took_s):.2f} s"),
    ]
    print(f"\nFrom a NaN to its alert, beside {options.flooding} runs that flood\n")
    print(markdown_table(("what", "figure"), rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--flooding", type=int, default=16)
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--layers", type=int, default=100)
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--database", help="the URL of an empty PostgreSQL database")
    return parser.parse_args()


if __name__ == "__main__":
    main()
