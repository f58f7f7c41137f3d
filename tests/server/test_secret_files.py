"""Files that hold keys, and the folders of what runs told."""

import os
import stat
from pathlib import Path

import pytest

from runwatch_server.secret_files import OWNER_AND_GROUP, make_folder, write_secret


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_others_cannot_read_it_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_secret(tmp_path / "own", b"a key")
        write_secret(tmp_path / "shared", b"a key", OWNER_AND_GROUP)
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o640


def test_folders_that_are_made_are_ours_alone_and_one_that_is_there_keeps_its_mode(
    tmp_path: Path,
) -> None:
    (tmp_path / "shared").mkdir(0o755)
    make_folder(tmp_path / "shared" / "a" / "b")
    make_folder(tmp_path / "shared")

    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "shared" / "a").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "shared" / "a" / "b").stat().st_mode) == 0o700


def test_what_was_there_stays_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key"
    write_secret(path, b"the old one")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            write_secret(path, b"the new one")
    assert path.read_bytes() == b"the old one"
    assert [found.name for found in tmp_path.iterdir()] == ["key"]

    write_secret(path, b"the new one")
    assert path.read_bytes() == b"the new one"
