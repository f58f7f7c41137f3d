"""What the service is told about a run, and hears back: nothing at all before the line is open."""

import time
from collections.abc import Iterable, Mapping

from runwatch.commands import Command
from runwatch.frames import Event, Scalar
from runwatch.vocabulary import Phase
from runwatch_hooks.actions import Notes, Outcome
from runwatch_hooks.faults import Faults
from runwatch_hooks.lifecycle.run_end import Status
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.reporting.channel import Line
from runwatch_hooks.reporting.reserved_names import PREFIX
from runwatch_hooks.rows.row import Row
from runwatch_hooks.seeing.step_reading import Reading

log = OwnLog(__name__)


class Reports:
    """One watch's line, from before it is open to after its end."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._line: Line | None = None
        self._stage: str | None = None
        self._num_lost = 0

    def service_time(self) -> float:
        """As well as it is known here."""
        return time.time() if self._line is None else self._line.service_time()

    def open(self, line: Line) -> None:
        self._line = line

    def close(self, status: Status, timeout_s: float, *, reason: str) -> None:
        if self._line is not None:
            self._line.close(status, timeout_s, reason=reason)

    def take_commands(self) -> list[Command]:
        return [] if self._line is None else self._line.take_commands()

    def put_row(self, row: Row) -> None:
        """From any thread."""
        if self._line is not None:
            self._line.put_row(row)

    def put_outcome(self, outcome: Outcome) -> None:
        """What a command came to."""
        self.tell(Notes((outcome.receipt,), outcome.events))

    def tell(self, notes: Notes) -> None:
        if self._line is not None:
            for receipt in notes.receipts:
                self._line.put_receipt(receipt)
            for event in notes.events:
                self._line.put_event(event)

    def tell_progress(self, last_step: int | None, phase: Phase, lr_scale: float) -> None:
        if self._line is not None:
            self._line.set_progress(last_step, phase, lr_scale)

    def tell_event(self, step: int, kind: str, now: float, detail: Mapping[str, Scalar]) -> None:
        if self._line is not None:
            self._line.put_event(Event(step, kind, now, dict(detail)))

    def tell_stage(self, reading: Reading, step: int, now: float) -> None:
        """Where gradients were read, at first and whenever it is another place than before."""
        if reading.stage is not None and reading.stage.name.lower() != self._stage:
            self._stage = reading.stage.name.lower()
            self.tell_event(step, "grad_stage", now, {"stage": self._stage})

    def tell_unwatched(self, notices: Iterable[str], step: int, now: float) -> None:
        """What of the training is not watched."""
        for notice in notices:
            log.warning("step %d: %s", step, notice)
            self.tell_event(step, "unwatched", now, {"what": notice})

    def tell_changes(self, changes: Iterable[str], step: int, now: float) -> None:
        """What is watched in the place of something else. Models grow and optimizers are made anew
        in trainings that are well: this stands on the timeline, and wakes nobody."""
        for change in changes:
            log.info("step %d: %s", step, change)
            self.tell_event(step, "watch_changed", now, {"what": change})

    def tell_omissions(self, omissions: Iterable[str], step: int, now: float) -> None:
        """What the program leaves out of the training that it was to do."""
        for omission in omissions:
            log.warning("step %d: %s", step, omission)
            self.tell_event(step, "untrained", now, {"what": omission})

    def tell_renamed(self, names: Iterable[str], step: int, now: float) -> None:
        """The user's numbers that are kept under other names than they were given."""
        for name in names:
            self.tell_event(step, "renamed", now, {"name": name, "kept_as": PREFIX + name})

    def tell_faults(self, step: int, now: float, *, num_lost: int) -> None:
        """What went wrong in us, and the rows (counted from the start) that lost their stats."""
        for fault in self._faults.untold():
            self.tell_event(step, "hook_fault", now, {"error": fault})
        if num_lost > self._num_lost:
            num_more, self._num_lost = num_lost - self._num_lost, num_lost
            self.tell_event(step, "gap", now, {"rows_without_stats": num_more})
