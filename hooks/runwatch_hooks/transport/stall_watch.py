"""Decides when the training thread stands still for so long that its stack is worth a look."""

import time
from collections.abc import Callable
from typing import Final

from runwatch.frames import Event
from runwatch.stalls import STALL
from runwatch.vocabulary import Phase
from runwatch_hooks.transport.progress import Progress
from runwatch_hooks.transport.stacks import stall_of

_TIMES_LONGEST: Final = 2.0
"""Below the three times for which StepOverdue waits, so that the alert can say where."""
_TIMES_UNKNOWN: Final = 15.0
"""Before a phase other than training has ended once: an evaluation may well take ten minutes."""


class StallWatch:
    """Looks at the stack of a training thread that does not get on.

    It learns how long steps and phases take, and looks when one takes far longer than any before;
    then each time the stall has doubled, so that a hang of hours is told of a dozen times. A stack
    that has not changed is not told again.
    """

    def __init__(
        self,
        progress: Callable[[], Progress],
        tell: Callable[[Event], None],
        *,
        stall_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`stall_s` is as in TransportSettings; `now` is the clock of `Progress.since`."""
        self._progress = progress
        self._tell = tell
        self._stall_s = stall_s
        self._now = now
        self._longest_s: dict[Phase, float] = {}
        self._stay: tuple[Phase, float] | None = None
        """The phase of the step that was looked at last, and since when."""
        self._lasted_s = 0.0
        """How long that had lasted then."""
        self._due_s = 0.0
        self._told: tuple[str, ...] = ()

    def look(self) -> None:
        """To be called every second or so, by another thread than the one that trains."""
        progress = self._progress()
        stay = progress.phase, progress.since
        if stay != self._stay:
            self._learn()
            self._stay, self._told, self._due_s = stay, (), self._limit_s(progress.phase)
        self._lasted_s = self._now() - progress.since
        if self._lasted_s < self._due_s or progress.phase is Phase.IDLE:
            return
        self._due_s = 2.0 * self._lasted_s
        stall = stall_of(progress.thread, self._lasted_s)
        if stall is not None and stall.stack != self._told:
            self._told = stall.stack
            self._tell(Event(progress.last_step or 0, STALL, time.time(), stall.to_detail()))

    def _learn(self) -> None:
        """What was looked at before is over."""
        if self._stay is not None:
            phase, _ = self._stay
            self._longest_s[phase] = max(self._longest_s.get(phase, 0.0), self._lasted_s)

    def _limit_s(self, phase: Phase) -> float:
        longest_s = self._longest_s.get(phase)
        if longest_s is None and phase is not Phase.TRAIN:
            return _TIMES_UNKNOWN * self._stall_s
        return max(self._stall_s, _TIMES_LONGEST * (longest_s or 0.0))
