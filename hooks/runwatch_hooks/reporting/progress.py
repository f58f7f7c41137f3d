"""The current step, segment and phase of a run, and telling the service when they change."""

import time

from runwatch.vocabulary import Phase
from runwatch_hooks.reporting.phases import Phases
from runwatch_hooks.reporting.reports import Reports
from runwatch_hooks.state import Actor


class Progress:
    """One watch's progress. Used by the training thread only."""

    def __init__(self, reports: Reports, actor: Actor, *, is_leader: bool) -> None:
        """Only the leader reports phases as events: they are the same on all ranks."""
        self._reports = reports
        self._actor = actor
        self._is_leader = is_leader
        self._phases = Phases()
        self.next_step = 0
        """The number of the step to train next."""
        self.segment = 0
        """The number of rollbacks so far."""

    @property
    def last_step(self) -> int:
        """The step that ended last, to which new numbers and events belong; 0 before any ended."""
        return max(self.next_step - 1, 0)

    @property
    def is_in_phase(self) -> bool:
        """Whether the program is inside a `phase` block."""
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
        """The program is training another run now."""
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
