"""Watches free disk space, and refuses frames while there is still room for everything else.

On a full disk SQLite cannot even delete. So frames are refused early; alerts, commands, keys and
the removal of old data go on in the space that is left.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from runwatch_server.errors import OverloadedError

log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 1.0
_RETRY_S: Final = 30
_OF_RESERVE_FOR_WAL: Final = 4
"""What goes into the database's free pages goes through its WAL first: a quarter of the reserve
must be free outside of them."""


class DiskGuard:
    """Guards the disk of one folder. `free_bytes` asks the system; tests pass their own."""

    def __init__(
        self,
        folder: Path,
        *,
        reserve_bytes: int,
        monotonic: Callable[[], float],
        free_bytes: Callable[[Path], int] | None = None,
        reusable_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        """`reusable_bytes` is what the database's own files have room for."""
        self.reserve_bytes = reserve_bytes
        self._reusable_bytes = reusable_bytes
        self._folder = folder
        self._monotonic = monotonic
        self._ask = free_bytes or _free_bytes
        self._looked_at = -_LOOK_EVERY_S
        self._fault = ""
        """Why frames are refused; empty if they are not."""

    @property
    def is_full(self) -> bool:
        """Whether less than the reserve is free, or the folder cannot be found; measured at most
        once a second."""
        now = self._monotonic()
        if self.reserve_bytes and now - self._looked_at >= _LOOK_EVERY_S:
            self._looked_at = now
            before, self._fault = self._fault, self._look()
            if bool(before) != bool(self._fault):
                told = f"refused: {self._fault}" if self._fault else "taken again"
                log.warning("%s: frames are %s", self._folder, told)
        return bool(self._fault)

    def check(self) -> None:
        """Raises OverloadedError if less than the reserve is free, or the folder is gone."""
        if self.is_full:
            raise OverloadedError("disk_full", self._fault, retry_after_s=_RETRY_S)

    def _look(self) -> str:
        try:
            free = self._ask(self._folder)
        except OSError as error:
            return f"The service's data directory cannot be read: {error.strerror}."
        enough_for_wal = self.reserve_bytes // _OF_RESERVE_FOR_WAL
        if free >= enough_for_wal and free + self._reusable_bytes() >= self.reserve_bytes:
            return ""
        return f"Less than {self.reserve_bytes >> 20} MiB are free on the service's disk."


def _free_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize
