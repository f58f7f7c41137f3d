"""Everything that a watch sends to the service, and the commands that come back.

Before the channel is opened, nothing is sent.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from runwatch.commands import Command, Receipt
from runwatch.frames import Event, Scalar
from runwatch.omissions import OMISSION, Omission
from runwatch.vocabulary import Phase
from runwatch_hooks.exit_causes import Status
from runwatch_hooks.faults import Faults
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.phases import Phases
from runwatch_hooks.state import Actor, Notes, Outcome
from runwatch_hooks.step.numbers import PREFIX
from runwatch_hooks.step.row import Row
from runwatch_hooks.step.step_reading import Reading


class Channel(Protocol):
    """Sends rows, events and receipts, and receives commands. Implemented by the uplink, and by
    a recorder in tests. Except `close`, no method waits; none raises."""

    def service_time(self) -> float: ...
    def put_row(self, row: Row) -> None: ...
    def close_row(self, step: int, segment: int) -> None: ...
    def put_event(self, event: Event) -> None: ...
    def put_receipt(self, receipt: Receipt) -> None: ...
    def set_progress(self, step: int | None, phase: Phase, lr_scale: float) -> None: ...
    def take_commands(self) -> list[Command]: ...
    def close(self, status: Status, timeout_s: float = 10.0, *, reason: str = "") -> None: ...


log = OwnLog(__name__)


class Reports:
    """One watch's reports, over a channel that may not be open yet."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._channel: Channel | None = None
        self._stage: str | None = None
        self._num_lost = 0

    def service_time(self) -> float:
        """The service's clock, in Unix seconds, as well as it is known here."""
        return time.time() if self._channel is None else self._channel.service_time()

    def open(self, channel: Channel) -> None:
        self._channel = channel

    def close(self, status: Status, timeout_s: float, *, reason: str) -> None:
        if self._channel is not None:
            self._channel.close(status, timeout_s, reason=reason)

    def take_commands(self) -> list[Command]:
        return [] if self._channel is None else self._channel.take_commands()

    def put_row(self, row: Row) -> None:
        """Send a row. May be called from any thread."""
        if self._channel is not None:
            self._channel.put_row(row)

    def close_row(self, step: int, segment: int) -> None:
        """Nothing more is logged for this step."""
        if self._channel is not None:
            self._channel.close_row(step, segment)

    def put_outcome(self, outcome: Outcome) -> None:
        """Send the receipt and the events of a command."""
        self.tell(Notes((outcome.receipt,), outcome.events))

    def tell(self, notes: Notes) -> None:
        if self._channel is not None:
            for receipt in notes.receipts:
                self._channel.put_receipt(receipt)
            for event in notes.events:
                self._channel.put_event(event)

    def tell_progress(self, last_step: int | None, phase: Phase, lr_scale: float) -> None:
        if self._channel is not None:
            self._channel.set_progress(last_step, phase, lr_scale)

    def tell_event(
        self, step: int, kind: str, now: float, detail: Mapping[str, Scalar | list[str]]
    ) -> None:
        if self._channel is not None:
            self._channel.put_event(Event(step, kind, now, dict(detail)))

    def tell_stage(self, reading: Reading, step: int, now: float) -> None:
        """Report at which point of a step gradients were read: once, and whenever it changes."""
        if reading.stage is not None and reading.stage.name.lower() != self._stage:
            self._stage = reading.stage.name.lower()
            self.tell_event(step, "grad_stage", now, {"stage": self._stage})

    def tell_unwatched(self, notices: Iterable[str], step: int, now: float) -> None:
        """Report, and log as warnings, parts of the training that are not watched."""
        for notice in notices:
            log.warning("step %d: %s", step, notice)
            self.tell_event(step, "unwatched", now, {"what": notice})

    def tell_unheeded(self, notices: Iterable[str], step: int, now: float) -> None:
        """Report, and log as warnings, commands that the training loop ignores."""
        for notice in notices:
            log.warning("step %d: %s", step, notice)
            self.tell_event(step, "unheeded", now, {"what": notice})

    def tell_changes(self, changes: Iterable[str], step: int, now: float) -> None:
        """Report what is watched instead of something else. Healthy trainings replace optimizers
        and add parameters too, so this is shown on the timeline and does not alert."""
        for change in changes:
            log.info("step %d: %s", step, change)
            self.tell_event(step, "watch_changed", now, {"what": change})

    def tell_omissions(self, omissions: Iterable[Omission], step: int, now: float) -> None:
        """Report, and log as warnings, what the program was expected to train and does not."""
        self.tell_observed([omission.to_event(step, now) for omission in omissions])

    def tell_observed(self, events: Iterable[Event]) -> None:
        """Report what observers found, and log as warnings what the program does not train."""
        for event in events:
            if event.kind == OMISSION:
                log.warning("step %d: %s", event.step, event.detail["what"])
            self.tell(Notes(events=(event,)))

    def tell_renamed(self, names: Iterable[str], step: int, now: float) -> None:
        """Report the user's metrics that are stored under other names than they were given."""
        for name in names:
            self.tell_event(step, "renamed", now, {"name": name, "kept_as": PREFIX + name})

    def tell_faults(self, step: int, now: float, *, num_lost: int) -> None:
        """Report faults of the hook, and rows that lost their stats; `num_lost` counts those from
        the beginning of the run."""
        for fault in self._faults.untold():
            self.tell_event(step, "hook_fault", now, {"error": fault})
        if num_lost > self._num_lost:
            num_more, self._num_lost = num_lost - self._num_lost, num_lost
            self.tell_event(step, "gap", now, {"rows_without_stats": num_more})


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
