"""How long from a bad value leaving the trainer to the command arriving there?

The hook's real uplink in this process, a real `runwatch serve` beside it, loopback between them.
A healthy run is streamed; then a step with an exploded gradient is put into the uplink, marked
urgent as the hook marks a jump. The clock stops when the trainer's side holds the command that the
built-in rule asked for. One fresh run a sample, so that no cooldown stands in the way.

    python -m benchmarks.command_latency --samples 40
"""

import argparse
import math
import os
import secrets
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.harness import Service, machine, markdown_table, quantile, running_service

from runwatch.messages import AttemptOpen, RunOpen
from runwatch.ulids import ulid
from runwatch.vocabulary import PolicyMode, RunId
from runwatch_hooks.step.row import Row
from runwatch_hooks.uplink import Uplink, UplinkSettings

HEALTHY_STEPS: Final = 200
STEP_S: Final = 0.002
PATIENCE_S: Final = 10.0
LOOK_EVERY_S: Final = 0.0002


def main() -> None:
    options = _options()
    print(f"\n{machine()}")
    with running_service() as service, tempfile.TemporaryDirectory() as spool:
        samples = [measure(service, Path(spool)) for _ in range(options.samples)]
    arrived = [1000 * sample for sample in samples if math.isfinite(sample)]
    rows = [
        ("commands arrived", f"{len(arrived)} of {len(samples)}"),
        ("p50", f"{quantile(arrived, 0.5):.0f} ms"),
        ("p99", f"{quantile(arrived, 0.99):.0f} ms"),
        ("longest", f"{max(arrived):.0f} ms"),
    ]
    print(f"\nFrom a bad value to its command, {len(samples)} fresh runs\n")
    print(markdown_table(("what", "figure"), rows))


def measure(service: Service, spool: Path) -> float:
    """Seconds of one run; infinite where no command came."""
    run_id = RunId(ulid(int(time.time() * 1000), secrets.token_bytes(10)))
    opened = RunOpen(run_id, "bench")
    with service.client() as client:
        client.post("/runs", json={"run_id": run_id, "name": "bench"}).raise_for_status()
        policy = {"policy": PolicyMode.AUTO.value}
        client.patch(f"/runs/{run_id}", json=policy).raise_for_status()
    settings = UplinkSettings(
        url=service.url, token=service.process.admin_key, spool_dir=spool / run_id
    )
    attempt = AttemptOpen(
        token=ulid(int(time.time() * 1000), secrets.token_bytes(10)),
        started_at=time.time(),
        allow=("checkpoint", "rollback"),
        host={"pid": os.getpid()},
    )
    uplink = Uplink(settings, opened, attempt, 0)
    uplink.start()
    try:
        return _stream(uplink)
    finally:
        uplink.close("finished", timeout_s=5.0)


def _stream(uplink: Uplink) -> float:
    for step in range(HEALTHY_STEPS):
        uplink.put_row(_row(step, grad_norm=1.0 + 0.1 * math.sin(step)))
        time.sleep(STEP_S)  # paces a trainer; nothing is waited for
    time.sleep(0.5)  # the healthy steps arrive, and the poll for commands stands
    started_at = time.perf_counter()
    uplink.put_row(_row(HEALTHY_STEPS, grad_norm=100.0, urgent=True))
    while time.perf_counter() - started_at < PATIENCE_S:
        if uplink.take_commands():
            return time.perf_counter() - started_at
        time.sleep(LOOK_EVERY_S)
    return math.inf


def _row(step: int, *, grad_norm: float, urgent: bool = False) -> Row:
    metrics = {"loss": 2.0 + 0.01 * math.cos(step), "grad_norm": grad_norm, "lr": 0.1}
    return Row(step=step, segment=0, at=time.time(), metrics=metrics, urgent=urgent)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=40)
    return parser.parse_args()


if __name__ == "__main__":
    main()
