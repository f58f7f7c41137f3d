"""What the benchmarks share: statistics, tables, and a real service to measure against."""

import os
import platform
import random
import signal
import statistics
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from runwatch_server.demo.service_process import ServiceProcess


def median_interval(values: Sequence[float], *, draws: int = 4000) -> tuple[float, float, float]:
    """The median and its 95 % percentile-bootstrap interval."""
    generator = random.Random(0)
    medians = sorted(
        statistics.median(generator.choices(values, k=len(values))) for _ in range(draws)
    )
    return statistics.median(values), medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def markdown_table(heading: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [list(heading), ["---"] * len(heading), *[[str(cell) for cell in row] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine() -> str:
    """What the figures were taken on, in a line."""
    load = ", ".join(f"{x:.2f}" for x in os.getloadavg())
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, load before: {load}"


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True, slots=True)
class Service:
    """A `runwatch serve` process."""

    process: ServiceProcess
    folder: Path

    @property
    def url(self) -> str:
        return self.process.url

    @property
    def data_dir(self) -> Path:
        return self.folder / "service"

    def client(self) -> httpx.Client:
        """With the admin key."""
        return httpx.Client(
            base_url=f"{self.url}/api/v1",
            headers={"Authorization": f"Bearer {self.process.admin_key}"},
            trust_env=False,
            timeout=60.0,
        )


@contextmanager
def running_service(database_url: str | None = None) -> Generator[Service]:
    """Started in a temporary folder, or on an empty PostgreSQL; stopped and removed afterwards,
    also where a signal ends the benchmark or its terminal is closed."""
    for end in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(end, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="runwatch-bench-") as name:
        process = ServiceProcess(Path(name), database_url=database_url)
        process.start()
        try:
            yield Service(process, Path(name))
        finally:
            process.stop()
