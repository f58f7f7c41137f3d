"""Bits that turn, and objects that go, under a service that is down: what cannot be read is named,
and all else is read as it was sent."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from tests.end_to_end.real_service import RealService
from tests.faults.checker import violations
from tests.faults.history import Broken, History, Named
from tests.faults.recording import RecordingSender, note_stored, stream_name
from tests.faults.sender import Sender

from runwatch_server.telemetry.packs.contents import Contents

pytestmark = pytest.mark.heavy

_FRAMES: Final = 14
_STEPS: Final = 10
_HOURS: Final = "48"
"""By which the packer's clock is ahead: every frame is old."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RealService]:
    environment = {"RUNWATCH_OBJECTS_URL": (tmp_path / "objects").as_uri()}
    with RealService(tmp_path / "service", environment=environment) as running:
        yield running


def send_run(service: RealService, history: History) -> RecordingSender:
    opened = Sender.open(service.url, service.create_key("ingest"))
    sender = RecordingSender.after(opened, history)
    for seq in range(1, _FRAMES + 1):
        sender.send(seq, [float(seq)] * _STEPS, first_step=_STEPS * (seq - 1))
    closing = {"status": "finished", "last_step": _FRAMES * _STEPS - 1, "rank": 0}
    sender.json("POST", f"/runs/{opened.run_id}/attempts/1/close", closing)
    assert isinstance(sender, RecordingSender)
    return sender


def read(service: RealService, run_id: str, history: History) -> dict[int, Any]:
    """The losses by their steps; notes what is named."""
    found = service.ask("GET", f"/runs/{run_id}/series?metric=loss&points=1000")
    for gap in found.get("gaps", ()):
        for seq in range(gap["first_step"] // _STEPS + 1, gap["last_step"] // _STEPS + 2):
            history.note(Named(stream_name(run_id, 1, 0), seq))
    return dict(zip(found["steps"], found["values"], strict=True))


def judge(service: RealService, sender: RecordingSender, broken: set[int]) -> None:
    history = sender.history
    assert history is not None
    for seq in broken:
        history.note(Broken(stream_name(sender.run_id, 1, 0), seq))
    losses = read(service, sender.run_id, history)
    whole = [seq for seq in range(1, _FRAMES + 1) if seq not in broken]
    sent = {_STEPS * (seq - 1) + step: float(seq) for seq in whole for step in range(_STEPS)}
    assert losses == sent
    history.note_log(service.log, sender.key)
    note_stored(history, service, [sender.run_id])
    assert violations(history) == []


def test_frames_that_rot_in_the_database_are_named_and_nothing_else_is(
    service: RealService, tmp_path: Path
) -> None:
    sender = send_run(service, History(tmp_path / "history.jsonl"))
    service.stop()
    for seq in (2, 7):
        service.rot_frame(sender.run_id, seq)
    service.start()

    judge(service, sender, {2, 7})


def test_objects_that_are_lost_or_damaged_are_named_and_nothing_else_is(
    service: RealService, tmp_path: Path
) -> None:
    sender = send_run(service, History(tmp_path / "history.jsonl"))
    service.stop()
    packing = (sys.executable, "-m", "tests.faults.packing_process")
    where = (str(service.database.parent), (tmp_path / "objects").as_uri())
    subprocess.run([*packing, *where, "--hours", _HOURS], cwd=Path(__file__).parents[2], check=True)
    (lost, of_lost), (damaged, of_damaged), *rest = packs(service.database)
    (tmp_path / "objects" / lost).unlink()
    shutil.copy(tmp_path / "objects" / rest[0][0], tmp_path / "objects" / damaged)
    service.start()

    judge(service, sender, of_lost | of_damaged)


def packs(database: Path) -> list[tuple[str, set[int]]]:
    """Objects and the numbers of their frames, in order."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT object, contents FROM packs ORDER BY first_seq")
        found = [(name, Contents.decode(packed)) for name, packed in rows]
    return [(name, set(range(one.first_seq, one.last_seq + 1))) for name, one in found]
