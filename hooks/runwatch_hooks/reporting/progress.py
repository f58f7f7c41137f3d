"""How far a run has come, and what it is at: the service is told of each change."""

import time

from runwatch.vocabulary import Phase
from runwatch_hooks.actions import Actor
from runwatch_hooks.reporting.phases import Phases
from runwatch_hooks.reporting.reports import Reports


class Progress:
    """One watch's place in its run. For the training thread."""

    def __init__(self, reports: Reports, actor: Actor, *, is_leader: bool) -> None:
        """Phases are the same on all ranks, and told as events by the leader alone."""
        self._reports = reports
        self._actor = actor
        self._is_leader = is_leader
        self._phases = Phases()
        self.next_step = 0
        """The number of the step to be trained next."""
        self.segment = 0
        """How often the run went back."""

    @property
    def last_step(self) -> int:
        """The step that ended last, which numbers and events belong to; 0 before the first end."""
        return max(self.next_step - 1, 0)

    @property
    def is_in_phase(self) -> bool:
        """Whether it is in one that the program has entered."""
        return self._phases.are_open

    def go_back(self, to_step: int) -> None:
        """A rollback has been carried out."""
        self.next_step = to_step
        self.segment += 1

    def train(self) -> None:
        """A step was trained, and the next one is due."""
        self._phases.settle(Phase.TRAIN)
        self.tell()

    def wait(self) -> None:
        """The program trains another run now."""
        self._phases.settle(Phase.IDLE)
        self.tell()

    def enter(self, name: str) -> None:
        self._phases.enter(name)
        self._tell_phase(name, "begin")

    def leave(self, name: str) -> None:
        self._phases.leave()
        self._tell_phase(name, "end")

    def tell(self) -> None:
        last_step = self.last_step if self.next_step else None
        self._reports.tell_progress(last_step, self._phases.now, self._actor.lr_scale)

    def _tell_phase(self, name: str, edge: str) -> None:
        self.tell()
        if self._is_leader:
            detail = {"phase": name, "edge": edge}
            self._reports.tell_event(self.last_step, "phase", time.time(), detail)
