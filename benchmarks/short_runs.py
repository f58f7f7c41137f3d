"""What do short runs leave behind? Many are begun, ended in order, aged and swept by retention.

A real `runwatch serve` process on SQLite, and runs in waves, as short runs come one after another.
Frames, rows, memory and file sizes are printed before the first run, once all have ended, and after
retention has had a few rounds.

    python -m benchmarks.short_runs --runs 200 --layers 100 --steps 50
"""

import argparse
import os
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from benchmarks.harness import Service, machine, markdown_table, running_service
from benchmarks.ingest import STATS, Trainer

from runwatch.codec import encode_frame
from runwatch.frames import Frame
from runwatch.layouts import Layer, Layout

_FRAME_STEPS: Final = 100
_ROUND_S: Final = 5
_TABLES: Final = ("frames", "rollups", "segments", "evaluations", "alerts", "runs")


def layout_of(num_layers: int) -> Layout:
    return Layout(tuple(Layer(f"b{index}.weight", (8, 8)) for index in range(num_layers)), STATS)


def bodies(layout: Layout, attempt: int, num_steps: int, seed: int) -> Iterator[bytes]:
    """A calm run: its loss falls, and its layers do not change."""
    random = np.random.default_rng(seed)
    for seq, first_step in enumerate(range(0, num_steps, _FRAME_STEPS), start=1):
        last_step = min(first_step + _FRAME_STEPS, num_steps)
        steps = np.arange(first_step, last_step, dtype=np.float64)
        noise = 0.01 * random.standard_normal(len(steps))
        loss = 2 * np.exp(-steps / 2000) + noise
        metrics = np.stack([loss, np.full(len(steps), 1e-3), 1 + noise], 1)
        stats = 1 + 0.01 * random.random((len(steps), layout.num_columns), dtype="f4")
        yield encode_frame(
            Frame(
                attempt=attempt,
                rank=0,
                seq=seq,
                segment=0,
                first_step=first_step,
                times=time.time() + 0.001 * steps,
                metric_names=("loss", "lr", "grad_norm"),
                metrics=metrics,
                layout_hash=layout.hash,
                stats=stats,
            )
        )


def train(service: Service, layout: Layout, num_steps: int, seed: int) -> None:
    trainer = Trainer(service.url, service.process.admin_key)
    attempt = trainer.open(layout)
    for body in bodies(layout, attempt, num_steps, seed):
        trainer.post(body)
    trainer.close(attempt)


def figures(service: Service) -> list[object]:
    """Rows of each table, resident memory, and sizes of the database's files."""
    path = service.data_dir / "runwatch.db"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        rows = [database.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in _TABLES]
    files = [path, path.with_name(f"{path.name}-wal")]
    return [*rows, rss_mib(service), *(f"{one.stat().st_size / 2**20:.1f}" for one in files)]


def rss_mib(service: Service) -> int:
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) >> 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--layers", type=int, default=100)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--wave", type=int, default=50, help="runs that come at once")
    parser.add_argument("--pause-s", type=float, default=20.0, help="between two waves")
    parser.add_argument("--age-s", type=float, default=120.0, help="after which frames go")
    options = parser.parse_args()
    print(machine())
    age_days = options.age_s / 86_400
    for name in ("RAW_DAYS", "EVIDENCE_DAYS", "ROLLUP_DAYS"):
        os.environ[f"RUNWATCH_{name}"] = str(age_days)
    os.environ["RUNWATCH_MAINTAIN_EVERY_S"] = str(_ROUND_S)
    layout = layout_of(options.layers)
    table: list[list[object]] = []
    with running_service() as service:
        table.append(["before", *figures(service)])
        for first in range(0, options.runs, options.wave):
            wave = range(first, min(first + options.wave, options.runs))
            with ThreadPoolExecutor(3) as pool:
                list(pool.map(partial(train, service, layout, options.steps), wave))
            time.sleep(options.pause_s)
        table.append(["all ended", *figures(service)])
        time.sleep(options.age_s + 4 * _ROUND_S)
        table.append(["aged and swept", *figures(service)])
    print(markdown_table(("", *_TABLES, "RSS MiB", "db MiB", "WAL MiB"), table))


if __name__ == "__main__":
    main()
