"""Several open runs in one program that trains one after another, such as folds or trials.

While a later run trains, the earlier ones are idle: no step of them is due, although nobody ended
them. The service must hear that, or it would alert on each as overdue. A run whose watch the
program has dropped, as when a notebook cell is run again, ends instead, because nothing can step it
any more.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

IDLE_AFTER_S: Final = 15.0
"""A run is idle after this long without a step while another run makes steps. Models trained in
alternation, such as a GAN's critic and generator, wait for each other far less, and the alert on
a missing step (StepOverdue) fires after 60 s at the earliest."""


class SiblingRun:
    """One open run among the others of its process."""

    def __init__(
        self, on_idle: Callable[[], None], is_let_go: Callable[[], bool], on_end: Callable[[], None]
    ) -> None:
        """`on_idle` is called when the run becomes idle, once until its next step; `on_end` when it
        can have no more steps, because its watch was dropped (`is_let_go`). Both are called in the
        thread that trains the other run, and must neither raise nor wait."""
        self._on_idle = on_idle
        self._is_let_go = is_let_go
        self._on_end = on_end
        self._thread = 0
        self._trained_at = 0.0
        self._is_idle = False

    def join(self) -> None:
        """The run begins, in this thread."""
        self._note(time.monotonic())
        _OPEN_RUNS.add(self)

    def leave(self) -> None:
        """The run has ended. May be called more than once."""
        _OPEN_RUNS.drop(self)

    def trained(self) -> None:
        """The run has made a step; tell the others, which have made none meanwhile."""
        now = time.monotonic()
        self._note(now)
        for other in _OPEN_RUNS.runs:
            if other is not self:
                other.hear(self._thread, now)

    def hear(self, thread: int, now: float) -> None:
        """Another run has made a step, in this thread."""
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


class _OpenRuns:
    """The open runs. Any thread may add or drop one while another iterates: the tuple is replaced,
    never changed."""

    def __init__(self) -> None:
        self.runs: tuple[SiblingRun, ...] = ()
        self._changing = threading.RLock()  # reentrant: a signal handler may end a run here

    def add(self, run: SiblingRun) -> None:
        with self._changing:
            self.runs = (*self.runs, run)

    def drop(self, run: SiblingRun) -> None:
        with self._changing:
            self.runs = tuple(one for one in self.runs if one is not run)


_OPEN_RUNS: Final = _OpenRuns()
"""Module-level, because two calls of `attach` have nothing but the process in common."""
