"""The runs that one program has open, of which it trains one after another: folds, say, or trials.

While a later one trains, no step of an earlier one is due, though nobody has ended it; without that
word the service would warn of each, and wake somebody. One that the program has let go, as of a
notebook's cell that is run again, ends as the later one begins: nobody can step it any more.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

IDLE_AFTER_S: Final = 15.0
"""Without a step of its own while another run makes some. Models that are trained by turns, as a
critic and its generator, wait for each other far less; a missing step is told after 60 s at the
earliest (StepOverdue)."""


class Member:
    """One run's place among the others of its process."""

    def __init__(
        self, on_idle: Callable[[], None], is_let_go: Callable[[], bool], on_end: Callable[[], None]
    ) -> None:
        """`on_idle` hears, once until the run's next step, that no step of it is due; `on_end` that
        none will come, where the program has let it go (`is_let_go`). Both are called in the thread
        that trains another run, and may neither raise nor wait."""
        self._on_idle = on_idle
        self._is_let_go = is_let_go
        self._on_end = on_end
        self._thread = 0
        self._trained_at = 0.0
        self._is_idle = False

    def join(self) -> None:
        """The run begins here, now."""
        self._note(time.monotonic())
        _COMPANY.add(self)

    def leave(self) -> None:
        """The run has ended. May be repeated."""
        _COMPANY.drop(self)

    def trained(self) -> None:
        """The run has made a step; the others that this thread trains have made none meanwhile."""
        now = time.monotonic()
        self._note(now)
        for other in _COMPANY.members:
            if other is not self:
                other.hear(self._thread, now)

    def hear(self, thread: int, now: float) -> None:
        """Another run was trained by this thread."""
        if self._is_let_go():
            self.leave()
            self._on_end()
            return
        waits_here = thread == self._thread and now - self._trained_at > IDLE_AFTER_S
        if waits_here and not self._is_idle:
            self._is_idle = True
            self._on_idle()

    def _note(self, now: float) -> None:
        self._thread, self._trained_at, self._is_idle = threading.get_ident(), now, False


class _Company:
    """Changed by any thread, and gone over by others meanwhile."""

    def __init__(self) -> None:
        self.members: tuple[Member, ...] = ()
        self._changing = threading.RLock()  # a signal handler may end a run within

    def add(self, member: Member) -> None:
        with self._changing:
            self.members = (*self.members, member)

    def drop(self, member: Member) -> None:
        with self._changing:
            self.members = tuple(one for one in self.members if one is not member)


_COMPANY: Final = _Company()
"""Two calls of `attach` share nothing but the process."""
