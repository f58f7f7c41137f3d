"""What the trainer is doing: as the training thread reported, and by the mode of its modules."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from runwatch.vocabulary import Phase


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of the training. Replaced as a whole, so that the sender never sees half a
    change."""

    last_step: int | None
    """None before the first step."""
    phase: Phase
    lr_scale: float
    since: float
    """When the last step ended, or the phase or the attempt began; monotonic clock."""
    thread: int
    """Identifier of the thread that trains."""

    @property
    def next_step(self) -> int:
        return 0 if self.last_step is None else self.last_step + 1


def never() -> bool:
    """False: for a program without modules."""
    return False


class ProgressBoard:
    """Written by the training thread (`tell`), read by the sender (`see`).

    A loop that evaluates without `watch.phase("eval")` would look as if it hung. It is recognised
    by its modules, which are in evaluation mode and were not when the last step ended.
    """

    def __init__(self, is_evaluating: Callable[[], bool] = never) -> None:
        """`is_evaluating` says whether all modules are in evaluation mode; called in any thread."""
        self._is_evaluating = is_evaluating
        self._told = Progress(
            None, Phase.INIT, 1.0, since=time.monotonic(), thread=threading.get_ident()
        )
        self._trains_in_eval = False
        self._seen: Phase | None = None
        self._seen_since = 0.0

    @property
    def last_step(self) -> int | None:
        return self._told.last_step

    @property
    def next_step(self) -> int:
        return self._told.next_step

    def tell(self, step: int | None, phase: Phase, lr_scale: float) -> None:
        """Report the current state. `since` starts again with each step and each phase."""
        told = self._told
        is_same = (step, phase) == (told.last_step, told.phase)
        since = told.since if is_same else time.monotonic()
        if step != told.last_step:  # some models are trained in evaluation mode
            self._trains_in_eval = self._is_evaluating()
        self._told = Progress(step, phase, lr_scale, since, threading.get_ident())

    def see(self) -> Progress:
        """The current state, with the phase `eval` if the modules show it."""
        told = self._told
        phase = told.phase
        if phase is Phase.TRAIN and not self._trains_in_eval and self._is_evaluating():
            phase = Phase.EVAL
        if phase is not self._seen:
            self._seen, self._seen_since = phase, time.monotonic()
        return replace(told, phase=phase, since=max(told.since, self._seen_since))
