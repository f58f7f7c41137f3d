"""Figures of the disk, whatever happens in the data directory while they are taken."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from runwatch_server.monitoring.disk_figures import DiskCollector


def figures(data_dir: Path) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in DiskCollector(data_dir).collect()
        for sample in family.samples
    }


@contextmanager
def files_that_come_and_go(data_dir: Path) -> Generator[None]:
    is_over = Event()

    def come_and_go() -> None:
        while not is_over.is_set():
            (data_dir / "runwatch.db-wal").touch()
            (data_dir / "runwatch.db-wal").unlink()

    thread = Thread(target=come_and_go)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_file_that_vanishes_while_it_is_counted_costs_itself_alone(tmp_path: Path) -> None:
    (tmp_path / "runwatch.db").write_bytes(bytes(100))

    with files_that_come_and_go(tmp_path):
        found = [figures(tmp_path) for _ in range(2000)]

    assert {one.get("runwatch_data_dir_bytes") for one in found} == {100}
    assert all(one["runwatch_disk_free_bytes"] > 0 for one in found)


def test_a_folder_that_is_not_there_has_no_figures(tmp_path: Path) -> None:
    assert figures(tmp_path / "gone") == {}
