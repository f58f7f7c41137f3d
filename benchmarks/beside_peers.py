"""Ours in the shared harness, beside other tools: the hook in a training, the service as a store.

The training is a GPT of 6.9 M parameters in 100 tensors; whatever watches it takes turns with the
bare loop. What is stored are steps of 100 layers x 4 stats and 5 metrics, in chunks of 50 steps; a
chunk is timed until it is acknowledged, and stores take turns with their chunks. A chunk is one
frame here, as a trainer's sender would pack it. What was written is read back by a fresh process,
from a service started anew. The harness and the other tools want an environment of their own, with
this project installed beside them:

    PYTHONPATH=. python ../shared/bench/hook_overhead.py --threads 2 --seconds 330 \
        --variants bare,bare_again,naive_item,foreach,wandb_log,tensorboard \
        --extra benchmarks/beside_peers.py:RunwatchSpooled \
        --extra benchmarks/beside_peers.py:RunwatchServed
    PYTHONPATH=. python ../shared/bench/ingest.py --extra benchmarks/beside_peers.py:RunwatchStore
"""

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import urllib3
from benchmarks.hook_overhead import LOWEST_PRIORITY
from benchmarks.ingest import STATS, Trainer
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from runwatch.codec import encode_frame
from runwatch.frames import Frame
from runwatch.layouts import Layer, Layout
from runwatch_hooks import attach
from runwatch_hooks.reading import connect
from runwatch_hooks.statistics.totals import STATS as STATS_OF_LAYERS
from runwatch_server.demo.service_process import ServiceProcess

METRICS: Final = ("loss", "lr", "loss_scale", "grad_norm", "tokens_per_s")
LAYOUT: Final = Layout(tuple(Layer(f"layer{index:03d}") for index in range(100)), STATS)
_READY_S: Final = 60.0


class RunwatchSpooled:
    """Our hook, every step and every tensor, to files."""

    def start(self, model: nn.Module, optimizer: Optimizer) -> None:
        self._stack = ExitStack()
        self._loss: Tensor | None = None
        folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="runwatch-bench-")))
        url, key = self._service(folder)
        self._watch = self._stack.enter_context(
            attach(model, optimizer, run="bench", url=url, token=key, spool=folder, allow=())
        )
        self.values = len(STATS_OF_LAYERS) * len(list(model.parameters()))

    def _service(self, folder: Path) -> tuple[str | None, str | None]:
        """Where rows are sent to, and the key."""
        return None, None

    def step(self, index: int, loss: Tensor) -> None:
        """The harness calls it before the optimizer steps: what ends here is the step before."""
        if self._loss is not None:
            self._watch.step(self._loss)
        self._loss = loss

    def close(self) -> None:
        self._stack.close()


class RunwatchServed(RunwatchSpooled):
    """Our hook, to a service of its own at the lowest priority."""

    def _service(self, folder: Path) -> tuple[str | None, str | None]:
        service = ServiceProcess(folder)
        service.start()
        self._stack.callback(service.stop)
        os.setpriority(os.PRIO_PROCESS, service.pid, LOWEST_PRIORITY)
        return service.url, service.admin_key


class RunwatchStore:
    """A real `runwatch serve`, the built-in rules on."""

    durable = "HTTP 200 per 50 steps: committed in SQLite (WAL, synchronous=FULL: fsync)"
    reader = "REST: /series per stat of a layer, /heatmap per stat of all"

    def open(self, folder: str) -> None:
        self._folder = Path(folder)
        self._service = ServiceProcess(self._folder)
        self._service.start()
        self._trainer = Trainer(self._service.url, self._service.admin_key)
        self._attempt = self._trainer.open(LAYOUT)
        self._rows: list[tuple[int, NDArray[np.float32], NDArray[np.float32]]] = []
        self._num_frames = 0
        (self._folder / "run").write_text(f"{self._trainer.run_id} {self._service.admin_key}")

    def write(self, step: int, stats: NDArray[np.float32], scalars: NDArray[np.float32]) -> None:
        """`stats` (layers, stats), `scalars` (metrics,)."""
        self._rows.append((step, stats, scalars))

    def flush(self) -> None:
        steps, stats_TLS, metrics_TM = zip(*self._rows, strict=True)
        self._rows = []
        self._num_frames += 1
        by_stat_TSL = np.stack(stats_TLS).transpose(0, 2, 1)
        frame = Frame(
            attempt=self._attempt,
            rank=0,
            seq=self._num_frames,
            segment=0,
            first_step=steps[0],
            times=time.time() + 0.1 * np.arange(len(steps), dtype=np.float64),
            metric_names=METRICS,
            metrics=np.stack(metrics_TM).astype(np.float64),
            layout_hash=LAYOUT.hash,
            stats=np.ascontiguousarray(by_stat_TSL.reshape(len(steps), -1)),
        )
        self._trainer.post(encode_frame(frame))

    def finish(self) -> None:
        self._service.stop()

    def open_reader(self, folder: str) -> None:
        run_id, key = Path(folder, "run").read_text().split()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        data_dir = str(Path(folder) / "service")
        program = [sys.executable, "-m", "runwatch_server.cli", "serve", "--quiet", "--port", port]
        self._reading = subprocess.Popen([*program, "--data-dir", data_dir])
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + _READY_S
        while not _is_ready(url):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the service on {data_dir} is not ready")
            time.sleep(0.05)
        self._run = connect(url, key).run(run_id)
        self._http = urllib3.PoolManager(headers={"Authorization": f"Bearer {key}"})
        self._heatmap = f"{url}/api/v1/runs/{run_id}/heatmap"

    def close_reader(self) -> None:
        self._reading.terminate()
        self._reading.wait()

    def read_layer(self, layer: int) -> NDArray[Any]:
        """(steps, stats)"""
        name = LAYOUT.layers[layer].name
        series = [self._run.history(stat, layer=name).columns["value"] for stat in STATS]
        return np.stack(series, axis=1)

    def read_range(self, first_step: int, end: int) -> NDArray[Any]:
        """(steps, layers, stats)"""
        window = f"from={first_step}&to={end - 1}&points={end - first_step}"
        addresses = [f"{self._heatmap}?stat={stat}&{window}" for stat in STATS]
        read = [self._http.request("GET", address).json() for address in addresses]
        return np.array([found["values"] for found in read]).transpose(2, 1, 0)


def _is_ready(url: str) -> bool:
    try:
        answer = urllib3.request("GET", f"{url}/readyz", retries=False, timeout=1.0)
    except urllib3.exceptions.HTTPError:
        return False
    return answer.status == 200
