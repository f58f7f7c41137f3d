"""An upgrade, replica by replica: the version before the newest migration serves beside this one.

The old code is taken from the repository's own history, and meets tables that this version has
migrated under it; then it is started again on them, as after a crash in the middle of the upgrade.
"""

import io
import re
import subprocess
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from tests.end_to_end.real_service import RealService
from tests.faults.checker import violations
from tests.faults.history import History
from tests.faults.recording import RecordingSender, note_frames
from tests.faults.sender import Sender
from tests.postgres import Postgres

pytestmark = pytest.mark.heavy

ROOT: Final = Path(__file__).parents[2]
VERSIONS: Final = "migrations/runwatch_migrations/versions"
SOURCES: Final = ("watchdog", "hooks", "server", "migrations")


def git(*arguments: str) -> bytes:
    return subprocess.run(("git", *arguments), cwd=ROOT, check=True, capture_output=True).stdout


@pytest.fixture(scope="module")
def old_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commit before the one that added the newest migration."""
    try:
        newest = sorted(one.name for one in (ROOT / VERSIONS).glob("[0-9]*.py"))[-1]
        file = f"{VERSIONS}/{newest}"
        added = git("log", "-1", "--format=%H", "--diff-filter=A", "--", file).decode().strip()
        packed = git("archive", f"{added}^", *SOURCES)
    except subprocess.CalledProcessError:
        pytest.skip("needs the repository's history: git fetch --unshallow")
    place = tmp_path_factory.mktemp("old")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(place, filter="data")
    return place


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """Without tables: the old version makes its own."""
    name = postgres.create()
    yield name
    postgres.drop(name)


def revision(postgres: Postgres, database: str) -> str:
    ((found,),) = postgres.execute("SELECT version_num FROM alembic_version", database=database)
    return str(found)


def test_old_and_new_replicas_share_one_database_and_lose_nothing(
    old_code: Path, postgres: Postgres, database: str, tmp_path: Path
) -> None:
    history = History(tmp_path / "history.jsonl")
    url = postgres.url(database)
    paths = ":".join(str(old_code / source) for source in SOURCES)
    old = RealService(tmp_path / "old", database_url=url, environment={"PYTHONPATH": paths})
    new = RealService(tmp_path / "new", database_url=url)
    try:
        old.start()
        old.admin_key = old.admin_key or _printed_key(old)
        before = revision(postgres, database)
        opened = Sender.open(old.url, old.create_key("ingest"))
        by_old = RecordingSender.after(opened, history)
        by_new = RecordingSender.after(opened, history, url=new.url)
        by_old.send_until_acknowledged(1, [1.0], first_step=0)

        new.admin_key = old.admin_key
        new.start()
        assert revision(postgres, database) > before
        _use_both(by_old, by_new, first=2)
        _order_and_read(old, new, opened.run_id)
        if _may_come_back(old_code):
            old.kill()
            old.start()
            _use_both(by_old, by_new, first=22)
            _order_and_read(old, new, opened.run_id)
        for service in (old, new):
            history.note_log(service.log, opened.key)
            assert "Traceback" not in service.log.read_text(), service.log.read_text()[-4000:]
    finally:
        old.stop()
        new.stop()
    query = partial(postgres.execute, database=database)
    note_frames(history, query, [opened.run_id])
    assert violations(history) == []


def _printed_key(old: RealService) -> str:
    """Of versions that print the first admin key into their log."""
    found = re.search(r"RUNWATCH_TOKEN=(runwatch_\S+)", old.log.read_text())
    assert found is not None, old.log.read_text()
    return found.group(1)


def _use_both(by_old: Sender, by_new: Sender, *, first: int) -> None:
    """Twenty frames in turns, and each once more by the other: a duplicate to both."""
    for seq in range(first, first + 20):
        one, other = (by_old, by_new) if seq % 2 else (by_new, by_old)
        one.send_until_acknowledged(seq, [1.0], first_step=seq - 1)
        assert other.send(seq, [1.0], first_step=seq - 1)["duplicate"]


def _order_and_read(old: RealService, new: RealService, run_id: str) -> None:
    """What one version writes the other can read, either way."""
    for writer, reader in ((old, new), (new, old)):
        order = {"action": {"kind": "checkpoint"}}
        command = writer.ask("POST", f"/runs/{run_id}/commands", order)
        assert reader.ask("GET", f"/commands/{command['id']}")["state"] == command["state"]
        assert reader.ask("POST", f"/commands/{command['id']}/cancel")["state"] == "cancelled"
        for path in ("/runs", "/alerts", "/rules", "/audit", f"/runs/{run_id}/series?metric=loss"):
            assert reader.ask("GET", path)
    last_steps = {one.ask("GET", f"/runs/{run_id}")["last_step"] for one in (old, new)}
    assert len(last_steps) == 1


def _may_come_back(old_code: Path) -> bool:
    """Versions from before this test refused tables that are newer than they."""
    return "newer version" in (old_code / "server/runwatch_server/schema.py").read_text()
