"""What a rank has measured of its steps and the others are to compare, until it is told."""

import threading
from collections import deque
from collections.abc import Sequence
from typing import Final

from runwatch_hooks.ranks.letters import Fingerprint
from runwatch_hooks.ranks.standing import Pace, pace_of
from runwatch_hooks.rows.row import Row

_MAX_WAITING: Final = 1024
"""Of each kind, while the store is slow or gone; beyond it the oldest are lost."""


class Untold:
    """Filled by the training thread, and emptied by the one that tells."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # as RowQueue's, for the sake of signal handlers
        self._fingerprints: deque[Fingerprint] = deque(maxlen=_MAX_WAITING)
        self._paces: deque[Pace] = deque(maxlen=_MAX_WAITING)

    def put_row(self, row: Row) -> None:
        """What of a row can be compared with other ranks' rows of its step."""
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
