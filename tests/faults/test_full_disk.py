"""The service's disk is full, for real: a small file system, filled by somebody else.

The reserve that the service keeps free by itself is turned off, so that SQLite meets the end of the
disk in the middle of a transaction.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import urllib3
from tests.end_to_end.real_service import RealService
from tests.faults.checker import violations
from tests.faults.history import History
from tests.faults.recording import RecordingSender, note_stored
from tests.faults.sender import NotNowError, Sender

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small file system"),
]

_MIB: Final = 24
_LOSSES: Final = [float(step % 7) for step in range(4000)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, where this machine lets us mount one."""
    place = tmp_path / "service" / "data"
    place.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_MIB}m", "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine lets nobody mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def service(tmp_path: Path, disk: Path) -> Iterator[RealService]:
    environment = {"RUNWATCH_DISK_RESERVE_MIB": "0"}
    with RealService(tmp_path / "service", environment=environment) as running:
        yield running


def fill(disk: Path) -> Path:
    """To the last byte."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return ballast


def test_a_disk_that_fills_up_costs_no_acknowledged_frame(
    service: RealService, disk: Path, tmp_path: Path
) -> None:
    history = History(tmp_path / "history.jsonl")
    opened = Sender.open(service.url, service.create_key("ingest"))
    sender = RecordingSender.after(opened, history)
    for seq in range(1, 6):
        sender.send(seq, _LOSSES, first_step=len(_LOSSES) * seq)

    ballast = fill(disk)
    refused = _send_until_refused(sender, 6)
    with pytest.raises(NotNowError):  # not only once
        sender.send(refused, _LOSSES, first_step=len(_LOSSES) * refused)
    assert service.ask("GET", f"/runs/{sender.run_id}")["last_step"] is not None  # it is read still
    assert readiness(service) == 503
    ballast.unlink()
    for seq in range(refused, refused + 5):
        sender.send_until_acknowledged(seq, _LOSSES, len(_LOSSES) * seq)

    assert readiness(service) == 200
    assert service.log.read_text().count("works was lost") <= 2

    service.kill()  # the write-ahead log has it all
    service.start()
    history.note_log(service.log, sender.key)
    note_stored(history, service, [sender.run_id])
    assert violations(history) == []
    assert shutil.disk_usage(disk).free > 0


def readiness(service: RealService) -> int:
    return urllib3.request("GET", f"{service.url}/readyz", retries=False).status


def _send_until_refused(sender: Sender, seq: int) -> int:
    """What the write-ahead log still had room for is taken. Returns the first that is not."""
    for number in range(seq, seq + 500):
        try:
            sender.send(number, _LOSSES, first_step=len(_LOSSES) * number)
        except NotNowError:
            return number
        except urllib3.exceptions.HTTPError as error:
            raise AssertionError(f"no answer where the disk is full: {error}") from error
    raise AssertionError("the disk is full, and everything is taken")
