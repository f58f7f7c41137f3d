"""Locks the data directory: only one process can use it at a time."""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import IO, Final

from runwatch_server.errors import DataDirError, DataDirInUseError
from runwatch_server.secret_files import make_folder, make_private

_LOCK_FILE: Final = "lock"


class DataDirLock:
    """A lock held as long as the process lives; the kernel frees it however the process ends."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Take the lock. Raises DataDirError if the directory cannot be made, DataDirInUseError if
        another process uses it."""
        try:
            make_folder(self._data_dir)
            self._lock()
        except OSError as error:
            raise DataDirError(self._data_dir, error) from error

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _lock(self) -> None:
        make_private(self._data_dir / _LOCK_FILE)
        file = (self._data_dir / _LOCK_FILE).open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            with contextlib.closing(file):
                raise DataDirInUseError(self._data_dir, file.read().strip()) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file
