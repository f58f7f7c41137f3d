"""How much of the disk there is and how much the database takes, for Prometheus."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class DiskCollector(Collector):
    """Looks at the data directory when it is asked; says nothing where it cannot be read."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def collect(self) -> Iterable[GaugeMetricFamily]:
        free = _gauge("disk_free_bytes", "Free on the disk of the data directory.")
        size = _gauge("disk_size_bytes", "Size of the disk of the data directory.")
        held = _gauge("data_dir_bytes", "Size of the files in the data directory.")
        try:
            usage = shutil.disk_usage(self._data_dir)
            files = [path.stat() for path in self._data_dir.iterdir() if path.is_file()]
        except OSError:  # a file may go between the listing and the look
            usage, files = None, []
        if usage is not None:
            free.add_metric((), usage.free)
            size.add_metric((), usage.total)
            held.add_metric((), sum(file.st_size for file in files))
        return (free, size, held)


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"runwatch_{name}", text, labels=())
