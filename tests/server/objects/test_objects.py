"""One contract, held by a folder and by a real S3 API."""

import stat
from pathlib import Path

import pytest
from tests.server.objects.s3 import S3Server

from runwatch_server.errors import SettingsError
from runwatch_server.objects import (
    ObjectLostError,
    ObjectsAwayError,
    ObjectStore,
    make_objects,
)

pytestmark = pytest.mark.anyio


async def test_an_object_is_read_in_parts(objects: ObjectStore) -> None:
    await objects.put("run/a.pack", b"0123456789")

    assert await objects.read("run/a.pack", [(0, 3), (7, 10)]) == [b"012", b"789"]


async def test_an_object_that_is_not_there_is_lost(objects: ObjectStore) -> None:
    with pytest.raises(ObjectLostError, match=r"found no run/a\.pack"):
        await objects.read("run/a.pack", [(0, 3)])


async def test_of_an_object_cut_short_there_is_less_to_read(objects: ObjectStore) -> None:
    await objects.put("a.pack", b"01")

    assert await objects.read("a.pack", [(5, 9)]) == [b""]


async def test_a_number_in_a_name_does_not_say_that_an_object_was_cut_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = S3Server()
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    objects = make_objects(f"s3://{server.make_bucket('bucket-416')}")
    assert objects is not None
    server.stop()

    with pytest.raises(ObjectsAwayError):
        await objects.read("416.pack", [(0, 3)])


async def test_what_was_deleted_is_gone_and_may_be_deleted_again(objects: ObjectStore) -> None:
    await objects.put("run/a.pack", b"01")

    await objects.delete("run/a.pack")
    await objects.delete("run/a.pack")

    with pytest.raises(ObjectLostError):
        await objects.read("run/a.pack", [(0, 1)])


async def test_a_bucket_that_is_not_there_is_said_to_be_lost_or_away(bucket_url: str) -> None:
    objects = make_objects(bucket_url.replace("bucket-", "nothing-"))
    assert objects is not None

    with pytest.raises((ObjectLostError, ObjectsAwayError)):
        await objects.put("a.pack", b"01")


async def test_a_folder_that_cannot_be_written_is_away(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    objects = make_objects(f"file://{tmp_path}/file")
    assert objects is not None

    with pytest.raises(ObjectsAwayError, match=r"a\.pack was not written"):
        await objects.put("run/a.pack", b"01")


@pytest.mark.parametrize("is_absolute", [False, True])
async def test_a_name_that_leads_out_of_a_folder_reaches_nothing_there(
    is_absolute: bool, tmp_path: Path
) -> None:
    """Such as the index of a copy from elsewhere may hold."""
    objects = make_objects(f"file://{tmp_path}/objects")
    assert objects is not None
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    name = str(outside) if is_absolute else "run/../../outside"

    with pytest.raises(ObjectsAwayError, match="leads out"):
        await objects.put(name, b"other")
    with pytest.raises(ObjectLostError, match="leads out"):
        await objects.read(name, [(0, 4)])
    await objects.delete(name)

    assert outside.read_bytes() == b"mine"


@pytest.mark.parametrize("url", ["ftp://host/x", "s3://", "objects", "file://host/x"])
def test_a_url_that_names_no_store_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="objects_url: found"):
        make_objects(url)


def test_there_is_no_store_unless_one_is_named() -> None:
    assert make_objects(None) is None


async def test_folders_of_objects_are_for_their_user_alone(tmp_path: Path) -> None:
    objects = make_objects(f"file://{tmp_path}/objects")
    assert objects is not None
    await objects.put("run/a.pack", b"01")

    for folder in (tmp_path / "objects", tmp_path / "objects" / "run"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
