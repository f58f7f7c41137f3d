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


class DiskGuard:
    """Guards the disk of one folder. `free_bytes` asks the system; tests pass their own."""

    def __init__(
        self,
        folder: Path,
        *,
        reserve_bytes: int,
        monotonic: Callable[[], float],
        free_bytes: Callable[[Path], int] | None = None,
    ) -> None:
        self.reserve_bytes = reserve_bytes
        self._folder = folder
        self._monotonic = monotonic
        self._ask = free_bytes or _free_bytes
        self._looked_at = -_LOOK_EVERY_S
        self._is_full = False

    @property
    def is_full(self) -> bool:
        """Whether less than the reserve is free; measured at most once a second."""
        now = self._monotonic()
        if self.reserve_bytes and now - self._looked_at >= _LOOK_EVERY_S:
            self._looked_at = now
            free = self._ask(self._folder)
            if self._is_full != (free < self.reserve_bytes):
                self._is_full = not self._is_full
                log.warning(
                    "%s: %d MiB are free: frames are %s",
                    self._folder,
                    free >> 20,
                    "refused" if self._is_full else "taken again",
                )
        return self._is_full

    def check(self) -> None:
        """Raises OverloadedError if less than the reserve is free."""
        if self.is_full:
            raise OverloadedError(
                "disk_full",
                f"Less than {self.reserve_bytes >> 20} MiB are free on the service's disk.",
                retry_after_s=_RETRY_S,
            )


def _free_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize
