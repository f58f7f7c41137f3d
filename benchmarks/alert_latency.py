"""How long from a bad value reaching the service to the webhook behind Alertmanager?

A real `runwatch serve`, a real Alertmanager with `group_wait: 0s`, a real HTTP server as its
webhook, loopback between them. A frame with a loss that is no number is posted; the clock stops
when the webhook has the alert of that run. One fresh run a sample. Needs `prometheus-alertmanager`.

    python -m benchmarks.alert_latency --samples 40
"""

import argparse
import math
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import machine, markdown_table, quantile
from tests.faults.sender import Sender
from tests.server.notify.alertmanager_process import PROGRAM, AlertmanagerProcess
from tests.server.notify.sink import Sink, running_sink

from runwatch_server.demo.service_process import ServiceProcess

PATIENCE_S = 20.0
LOOK_EVERY_S = 0.0005


def main() -> None:
    options = _options()
    if shutil.which(PROGRAM) is None:
        raise SystemExit(f"wanted {PROGRAM} on this machine (Debian's package of that name)")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"\n{machine()}")
    with tempfile.TemporaryDirectory(prefix="runwatch-bench-") as name, running_sink() as sink:
        samples = _measure(Path(name), sink, options.samples)
    told = [1000 * sample for sample in samples if math.isfinite(sample)]
    rows = [
        ("alerts told", f"{len(told)} of {len(samples)}"),
        ("p50", f"{quantile(told, 0.5):.0f} ms"),
        ("p99", f"{quantile(told, 0.99):.0f} ms"),
        ("longest", f"{max(told):.0f} ms"),
    ]
    print(f"\nFrom a bad value to the webhook behind Alertmanager, {len(samples)} fresh runs\n")
    print(markdown_table(("what", "figure"), rows))


def _measure(folder: Path, sink: Sink, num_samples: int) -> list[float]:
    alertmanager = AlertmanagerProcess(folder, _free_port(), f"{sink.url}/webhook")
    service = ServiceProcess(folder)
    (folder / "service").mkdir()
    config = f"alertmanager: {{urls: ['{alertmanager.url}']}}"
    (folder / "service" / "receivers.yaml").write_text(config)
    try:
        alertmanager.start()
        service.start()
        return [_sample(service, sink) for _ in range(num_samples)]
    finally:
        service.stop()
        alertmanager.kill()


def _sample(service: ServiceProcess, sink: Sink) -> float:
    """Seconds of one run; infinite where nothing came."""
    sender = Sender.open(service.url, service.admin_key)
    sender.send(1, [2.0] * 50, first_step=0)
    started_at = time.perf_counter()
    sender.send(2, [math.nan], first_step=50)
    while time.perf_counter() - started_at < PATIENCE_S:
        if any(_tells_of(body, sender.run_id) for body in tuple(sink.bodies)):
            return time.perf_counter() - started_at
        time.sleep(LOOK_EVERY_S)
    return math.inf


def _tells_of(body: Any, run_id: str) -> bool:
    return any(alert["labels"].get("run_id") == run_id for alert in body["alerts"])


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=40)
    return parser.parse_args()


if __name__ == "__main__":
    main()
