"""`runwatch db` and the objects of packs: looked through, copied, and put back."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.cli.test_database_cli import place, run
from tests.server.harness import Api, HandClock, Storage, both_engines, frame, serve
from tests.server.telemetry.packs.conftest import bucket_url, objects, objects_url, s3
from tests.server.telemetry.packs.stored_run import DAY_S, packer
from typer.testing import Result

from runwatch.vocabulary import RunId
from runwatch_server.objects import ObjectStore
from runwatch_server.telemetry.packs.packing import PackLimits
from runwatch_server.telemetry.packs.queries import IndexedObject, indexed_objects

__all__ = ["bucket_url", "objects", "objects_url", "s3"]

pytestmark = pytest.mark.anyio

_ONE_EACH = PackLimits(pack_bytes=1, least_bytes=1)


@pytest.fixture
async def api(storage: Storage, hand_clock: HandClock, objects_url: str) -> AsyncIterator[Api]:
    async with serve(storage, clock=hand_clock, objects_url=objects_url) as api:
        yield api


@pytest.fixture
async def run_id(api: Api, hand_clock: HandClock, objects: ObjectStore) -> RunId:
    """A run of seven frames, of which six are packs of their own."""
    run_id = await api.new_run()
    for seq in range(1, 8):
        assert (await api.post(run_id, frame(seq, [1.0] * 10, first_step=10 * seq))).is_success
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})
    hand_clock.now += 2 * DAY_S
    assert await packer(api, objects, hand_clock, _ONE_EACH).run() == 6
    return run_id


async def indexed(api: Api) -> list[IndexedObject]:
    async with api.services.database.read() as connection:
        return await connection.run_sync(indexed_objects)


async def told(monkeypatch: pytest.MonkeyPatch, url: str | None, *arguments: Any) -> Result:
    """What a command says where this is the object store."""
    if url is None:
        monkeypatch.delenv("RUNWATCH_OBJECTS_URL", raising=False)
    else:
        monkeypatch.setenv("RUNWATCH_OBJECTS_URL", url)
    return await asyncio.to_thread(run, *arguments)  # it runs a loop of its own


async def losses(api: Api, run_id: RunId) -> Any:
    return await api.series(run_id, metric="loss", points=1000)


async def test_a_copy_holds_the_packed_objects_and_gives_them_back(
    api: Api, run_id: RunId, objects_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await losses(api, run_id)
    copy, elsewhere = tmp_path / "copy", tmp_path / "elsewhere"
    other_url = f"file://{tmp_path}/other objects"

    backed_up = await told(monkeypatch, objects_url, "backup", copy, "--data-dir", tmp_path)
    put_back = await told(monkeypatch, other_url, "restore", copy, "--data-dir", elsewhere)
    checked = await told(monkeypatch, other_url, "check", "--data-dir", elsewhere)

    outputs = (backed_up.output, put_back.output, checked.output)
    assert [one.exit_code for one in (backed_up, put_back, checked)] == [0, 0, 0], outputs
    async with serve(elsewhere, admin_key=api.admin_key, objects_url=other_url) as second:
        assert await losses(second, run_id) == before
        assert len(before["steps"]) == 70


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
@pytest.mark.heavy
async def test_beside_postgresql_the_objects_are_copied_alone(
    api: Api,
    run_id: RunId,
    storage: Storage,
    objects: ObjectStore,
    objects_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bucket's: copied because it was asked, lost, and put back."""
    before = await losses(api, run_id)
    where = ("--objects-only", *place(storage))
    copy = tmp_path / "copy"

    copied = await told(monkeypatch, objects_url, "backup", copy, "--objects", "copy", *where)
    for one in await indexed(api):
        await objects.delete(one.name)
    lost = await told(monkeypatch, objects_url, "check", *place(storage))
    put_back = await told(monkeypatch, objects_url, "restore", copy, *where)
    checked = await told(monkeypatch, objects_url, "check", *place(storage))

    assert [one.exit_code for one in (copied, lost, put_back, checked)] == [0, 1, 0, 0]
    assert lost.output.count("found no") == 6
    assert await losses(api, run_id) == before


@both_engines
async def test_objects_that_are_only_named_can_be_checked_without_us(
    api: Api,
    run_id: RunId,
    storage: Storage,
    objects: ObjectStore,
    objects_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only = [] if storage.database_url is None else ["--objects-only"]
    named = ["backup", tmp_path / "copy", "--objects", "name", *only, *place(storage)]
    done = await told(monkeypatch, objects_url, *named)

    folder = tmp_path / "copy.objects"
    assert (done.exit_code, [path.name for path in folder.iterdir()]) == (0, ["SHA256SUMS"])
    for one in await indexed(api):
        (content,) = await objects.read(one.name, [(0, one.num_bytes)])
        (folder / one.name).parent.mkdir(parents=True, exist_ok=True)
        (folder / one.name).write_bytes(content)
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True)


async def test_a_lost_and_a_damaged_object_are_named_and_the_rest_is_copied(
    run_id: RunId,
    api: Api,
    objects: ObjectStore,
    objects_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost, damaged, *whole = [one.name for one in await indexed(api)]
    await objects.delete(lost)
    await objects.put(damaged, b"RWP1 and something else")

    copy, elsewhere = tmp_path / "copy", tmp_path / "elsewhere"
    backed_up = await told(monkeypatch, objects_url, "backup", copy, "--data-dir", tmp_path)
    put_back = await told(monkeypatch, objects_url, "restore", copy, "--data-dir", elsewhere)
    checked = await told(monkeypatch, objects_url, "check", "--data-dir", elsewhere)

    for one in (backed_up, put_back, checked):
        assert one.exit_code == 1
        assert f"found no {lost}" in one.output
        assert f"{damaged}: found SHA-256" in one.output or one is put_back
    copied = [path for path in (tmp_path / "copy.objects").rglob("*.pack") if path.is_file()]
    assert len(copied) == len(whole)


async def test_without_the_object_store_nothing_is_called_whole(
    run_id: RunId, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backed_up = await told(monkeypatch, None, "backup", tmp_path / "copy", "--data-dir", tmp_path)

    assert backed_up.exit_code == 2
    assert "found none, wanted the store of 6 packed objects" in " ".join(backed_up.output.split())
    assert not (tmp_path / "copy").exists()


async def test_a_store_that_is_away_is_no_store_without_objects(
    run_id: RunId, objects_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is made when it answers: what is away may be there."""
    (tmp_path / "file").write_bytes(b"")
    away = f"file://{tmp_path}/file"

    backed_up = await told(monkeypatch, away, "backup", tmp_path / "copy", "--data-dir", tmp_path)

    assert (backed_up.exit_code, (tmp_path / "copy").exists()) == (2, False)
