"""Measurements of this rank that wait to be sent for comparison with other ranks."""

import threading
from collections import deque
from collections.abc import Sequence
from typing import Final

from runwatch_hooks.ranks.letters import Fingerprint
from runwatch_hooks.ranks.standing import Pace, pace_of
from runwatch_hooks.rows.row import Row

_MAX_WAITING: Final = 1024
"""Limit for each kind while the store is slow or gone; beyond it the oldest are dropped."""


class Untold:
    """Filled by the training thread, and emptied by the thread that sends."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant because of signal handlers, as in RowQueue
        self._fingerprints: deque[Fingerprint] = deque(maxlen=_MAX_WAITING)
        self._paces: deque[Pace] = deque(maxlen=_MAX_WAITING)

    def put_row(self, row: Row) -> None:
        """Keep what can be compared with other ranks' rows of the same step."""
        pace = pace_of(row.segment, row.step, row.metrics)
        if pace is not None:
            with self._lock:
                self._paces.append(pace)

    def put_fingerprints(self, fingerprints: Sequence[Fingerprint]) -> None:
        with self._lock:
            self._fingerprints.extend(fingerprints)

    def take_fingerprints(self) -> tuple[Fingerprint, ...]:
        with self._lock:
            taken = tuple(self._fingerprints)
            self._fingerprints.clear()
        return taken

    def take_paces(self) -> tuple[Pace, ...]:
        with self._lock:
            taken = tuple(self._paces)
            self._paces.clear()
        return taken
