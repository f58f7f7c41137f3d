"""The packer killed, or held up, between writing an object and indexing it: no frame is lost or in
two places, and no object is removed that a pack may still come to have."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from tests.end_to_end.real_service import RealService
from tests.faults.checker import violations
from tests.faults.history import History
from tests.faults.packing_process import POINTS
from tests.faults.recording import RecordingSender, note_frames
from tests.faults.sender import Sender
from tests.postgres import Postgres
from tests.waiting import LONGEST_S

pytestmark = pytest.mark.heavy

_FRAMES: Final = 24
_STEPS: Final = 5
_PACKED_H: Final = 48
_SWEPT_H: Final = 50
"""Two hours after the first packing: what was loose then is removed."""


class Bench:
    """A run that is over, and the packers that are let loose on it."""

    def __init__(self, folder: Path, database_url: str | None) -> None:
        self.objects = folder / "objects"
        self.history = History(folder / "history.jsonl")
        self._folder = folder
        self._url = database_url
        self._service = RealService(
            folder / "service",
            database_url=database_url,
            environment={"RUNWATCH_OBJECTS_URL": self.objects.as_uri()},
        )

    def send_run(self) -> str:
        self._service.start()
        try:
            opened = Sender.open(self._service.url, self._service.create_key("ingest"))
            sender = RecordingSender.after(opened, self.history)
            for seq in range(1, _FRAMES + 1):
                losses = [seq + step / 10 for step in range(_STEPS)]
                sender.send_until_acknowledged(seq, losses, (seq - 1) * _STEPS)
            closing = {"status": "finished", "last_step": _FRAMES * _STEPS - 1, "rank": 0}
            sender.json("POST", f"/runs/{opened.run_id}/attempts/1/close", closing)
        finally:
            self._service.stop()
        return opened.run_id

    def packer(self, hours: float, *fate: str) -> "subprocess.Popen[bytes]":
        module = ("-m", "tests.faults.packing_process")
        where = (str(self._folder / "service" / "data"), self.objects.as_uri())
        url = () if self._url is None else ("--database-url", self._url)
        command = (sys.executable, *module, *where, *url, "--hours", str(hours), *fate)
        return subprocess.Popen(command, cwd=Path(__file__).parents[2])

    def judge(self, run_id: str, query: Callable[[str], Iterable[Any]]) -> list[str]:
        """What the history says, with what is stored now."""
        history = History(self._folder / "judged.jsonl")
        shutil.copy(self.history.path, history.path)
        note_frames(history, query, [run_id])
        return violations(history)

    def read(self, run_id: str) -> Any:
        """The run's losses, as the service reads them."""
        self._service.start()
        try:
            return self._service.ask("GET", f"/runs/{run_id}/series?metric=loss&points=1000")
        finally:
            self._service.stop()

    def files(self) -> set[str]:
        found = (path for path in self.objects.rglob("*") if path.is_file())
        return {str(path.relative_to(self.objects)) for path in found}


def ended(packer: "subprocess.Popen[bytes]") -> int:
    return packer.wait(LONGEST_S)


def test_a_packer_killed_anywhere_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, None)
    run_id = bench.send_run()
    before = bench.read(run_id)
    database = tmp_path / "service" / "data" / "runwatch.db"

    def query(statement: str) -> list[Any]:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            return connection.execute(statement).fetchall()

    for point in POINTS:
        is_sweep = point in ("condemned", "removed")
        hours = _SWEPT_H if is_sweep else _PACKED_H
        assert ended(bench.packer(hours, "--at", point)) == -signal.SIGKILL, point
        assert bench.judge(run_id, query) == [], point
    assert ended(bench.packer(2 * _SWEPT_H)) == 0

    assert bench.judge(run_id, query) == []
    assert bench.read(run_id) == before
    assert len(before["steps"]) == _FRAMES * _STEPS
    assert bench.files() == {name for (name,) in query("SELECT object FROM packs")}
    assert query("SELECT name FROM loose_objects") == []
    assert query("SELECT count(*) FROM packs")[0][0] > 1


@pytest.fixture
def shared(postgres: Postgres, migrated_database: str) -> Iterator[str]:
    name = postgres.create(like=migrated_database)
    yield name
    postgres.drop(name)


@pytest.mark.parametrize(
    ("sweep_h", "is_swept"), [(_PACKED_H + 0.5, False), (_SWEPT_H, True)], ids=["soon", "late"]
)
def test_a_packer_that_stands_still_keeps_its_object_or_its_frames(
    sweep_h: float, is_swept: bool, postgres: Postgres, shared: str, tmp_path: Path
) -> None:
    """Another replica sweeps meanwhile: within the hour it leaves the object alone; after it, the
    object is removed and no pack comes to have it."""
    bench = Bench(tmp_path, postgres.url(shared))
    query = partial(postgres.execute, database=shared)
    run_id = bench.send_run()
    slow = bench.packer(_PACKED_H, "--at", "written", "--do", "STOP")
    try:
        stopped = os.waitid(os.P_PID, slow.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert stopped is not None
        assert stopped.si_code == os.CLD_STOPPED
        (written,) = bench.files()
        assert ended(bench.packer(sweep_h, "--sweep")) == 0
        assert (written in bench.files()) != is_swept
    finally:
        slow.send_signal(signal.SIGCONT)
    assert ended(slow) == 0

    assert bench.judge(run_id, query) == []
    indexed = {name for (name,) in query("SELECT object FROM packs")}
    assert (written in indexed) != is_swept
    assert indexed == bench.files()
    assert len(indexed) > 1
