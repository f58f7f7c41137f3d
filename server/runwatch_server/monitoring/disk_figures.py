"""Size and free space of the disk and size of the data directory, for Prometheus."""

import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class DiskCollector(Collector):
    """Measures the data directory at each scrape; gives no figures if it cannot be read."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def collect(self) -> Iterable[GaugeMetricFamily]:
        free = _gauge("disk_free_bytes", "Free space on the data directory's disk.")
        size = _gauge("disk_size_bytes", "Size of the data directory's disk.")
        held = _gauge("data_dir_bytes", "Size of the files in the data directory.")
        with suppress(OSError):
            usage = shutil.disk_usage(self._data_dir)
            free.add_metric((), usage.free)
            size.add_metric((), usage.total)
            held.add_metric((), sum(map(_size, self._data_dir.iterdir())))
        return (free, size, held)


def _size(path: Path) -> int:
    try:
        status = path.stat()
    except OSError:  # it vanished after it was listed, as SQLite's own files beside the database do
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"runwatch_{name}", text, labels=())
