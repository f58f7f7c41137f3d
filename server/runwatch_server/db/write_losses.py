"""Keeps account of lost transactions: a disk that is full for hours must not fill the log too."""

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

log = logging.getLogger(__name__)

_LINE_EVERY_S: Final = 60.0
_RECENT_S: Final = 60.0


class WriteLosses:
    """Logs the first lost transaction, then at most one line a minute, and the end of it."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._num_unlogged = 0
        self._logged_at: float | None = None
        self._lost_at: float | None = None
        """When the newest transaction was lost; None if a later one was committed."""
        self._is_told = False
        """Whether a line of the current spell has been logged."""

    @property
    def is_losing(self) -> bool:
        """Whether a transaction was lost within the last minute, and none committed since. Where
        nothing is written any more nobody can say."""
        return self._lost_at is not None and self._clock() - self._lost_at < _RECENT_S

    def lost(self, num_works: int, error: Exception, *, is_foreseen: bool) -> None:
        """`is_foreseen`: an error of the database or the disk, which needs no traceback."""
        now = self._lost_at = self._clock()
        if self._logged_at is not None and now - self._logged_at < _LINE_EVERY_S:
            self._num_unlogged += 1
            return
        why = (str(error).splitlines() or [type(error).__name__])[0]
        log.error(
            "a transaction of %d works was lost%s: %s",
            num_works,
            f", and {self._num_unlogged} others since the last such line"
            * bool(self._num_unlogged),
            why,
            exc_info=None if is_foreseen else error,
        )
        self._logged_at, self._num_unlogged, self._is_told = now, 0, True

    def committed(self) -> None:
        if self._lost_at is None:
            return
        self._lost_at = None
        if self._is_told:
            log.warning(
                "transactions are committed again; %d were lost without a line", self._num_unlogged
            )
            self._num_unlogged, self._is_told = 0, False
