"""Objects as files in a folder: the default beside SQLite, or a file system that replicas share."""

import asyncio
import contextlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from runwatch_server.objects.store import ObjectLostError, ObjectsAwayError
from runwatch_server.secret_files import make_folder

_UNFINISHED: Final = ".unfinished"


class FolderObjects:
    """Each object is a file, which is on disk completely or not at all: written beside, flushed,
    renamed.

    A name that leads out of the folder is not one of ours, whatever a database from elsewhere says:
    nothing is read, written or removed there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def place(self) -> str:
        return str(self._folder)

    async def put(self, name: str, content: bytes) -> None:
        if _leads_out(name):
            raise ObjectsAwayError(f"{self.place}: {name!r} was not written: it leads out of it")
        try:
            await asyncio.to_thread(_write, self._folder / name, content)
        except OSError as error:
            raise ObjectsAwayError(f"{self.place}: {name} was not written: {error}") from error

    async def read(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        if _leads_out(name):
            raise ObjectLostError(f"{self.place}: {name!r} was not read: it leads out of it")
        try:
            return await asyncio.to_thread(_read, self._folder / name, ranges)
        except FileNotFoundError as error:
            raise ObjectLostError(f"{self.place}: found no {name}") from error
        except OSError as error:
            raise ObjectsAwayError(f"{self.place}: {name} was not read: {error}") from error

    async def delete(self, name: str) -> None:
        if _leads_out(name):
            return
        try:
            await asyncio.to_thread(_delete, self._folder, name)
        except OSError as error:
            raise ObjectsAwayError(f"{self.place}: {name} was not removed: {error}") from error


def _leads_out(name: str) -> bool:
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts


def _write(path: Path, content: bytes) -> None:
    made = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    make_folder(path.parent)
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}{_UNFINISHED}")
    try:
        with unfinished.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    for folder in (path.parent, *(folder.parent for folder in made)):
        _flush_folder(folder)


def _flush_folder(folder: Path) -> None:
    """Flush the folder: a file's name is on disk only when its folder is."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _read(path: Path, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    with path.open("rb", buffering=0) as file:
        return [os.pread(file.fileno(), end - start, start) for start, end in ranges]


def _delete(root: Path, name: str) -> None:
    path = root / name
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty, or gone: both are fine
        for folder in path.parents:
            if folder == root:
                break
            folder.rmdir()
