"""Size and free space of the disk and size of the data directory, for Prometheus."""

import shutil
from collections.abc import Iterable
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
        try:
            usage = shutil.disk_usage(self._data_dir)
            files = [path.stat() for path in self._data_dir.iterdir() if path.is_file()]
        except OSError:  # a file may vanish after it was listed
            usage, files = None, []
        if usage is not None:
            free.add_metric((), usage.free)
            size.add_metric((), usage.total)
            held.add_metric((), sum(file.st_size for file in files))
        return (free, size, held)


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"runwatch_{name}", text, labels=())
