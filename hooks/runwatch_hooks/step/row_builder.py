"""Makes a step's row from the user's metrics, the probe's reading and the hook's own numbers."""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from runwatch.series import SUMMED_METRICS
from runwatch_hooks.detail import Closeup
from runwatch_hooks.faults import Faults
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.reports import Reports
from runwatch_hooks.step.guarded_steps import GuardedSteps
from runwatch_hooks.step.instruments import Instruments
from runwatch_hooks.step.numbers import Number, ReservedNames, count, number
from runwatch_hooks.step.observer import StepEnd, StepNotes
from runwatch_hooks.step.open_rows import RowAssembly, RowOutput
from runwatch_hooks.step.probe import Probe
from runwatch_hooks.step.row import StepTimer, is_broken, is_healthy
from runwatch_hooks.step.step_reading import Reading
from runwatch_hooks.step.user_numbers import UserNumbers
from runwatch_hooks.watch import Loggable

_PATIENCE_S: Final = 1.0
"""A row takes microseconds. If another thread hangs in one, training waits no longer than this."""


@dataclass(frozen=True, slots=True, eq=False)
class Logged:
    """Logged metrics that have yet to be made into a row.

    Makes rows one at a time, although several threads and signal handlers may log. What is logged
    while a row is being made, by another thread or by a signal handler that interrupts it, is
    queued and made into a row afterwards. A row made in the middle of another would corrupt both.
    """

    step: int
    segment: int
    at: float
    numbers: Mapping[str, Number]


class RowTurns:
    """A lock for making rows, with a queue of logged metrics.

    A signal handler runs in the thread that it interrupts, so a reentrant lock lets it in while
    that thread is making a row. What it logs is left in the queue for the interrupted code.
    """

    def __init__(self, make: Callable[[Logged], None]) -> None:
        self._make = make
        self._waiting: deque[Logged] = deque()
        self._turn = threading.RLock()
        self._is_making = False

    @contextmanager
    def turn(self) -> Generator[None]:
        """Make a step's row inside this block. Afterwards, what was logged meanwhile is made."""
        has_turn = self._turn.acquire(timeout=_PATIENCE_S)
        was_making, self._is_making = self._is_making, True
        try:
            yield
        finally:
            self._is_making = was_making
            if has_turn:
                self._turn.release()
            self.make_waiting()

    def put(self, logged: Logged) -> None:
        """Make a row of logged metrics now, or after the row that is being made."""
        self._waiting.append(logged)
        self.make_waiting()

    def make_waiting(self) -> None:
        """Make the rows that are queued by now, and no later ones: a thread that logs faster than
        rows are made must not keep this one here."""
        if not self._waiting or not self._turn.acquire(timeout=_PATIENCE_S):
            return
        try:
            if not self._is_making:
                self._make_those_by_now()
        finally:
            self._turn.release()

    def _make_those_by_now(self) -> None:
        self._is_making = True
        try:
            for _ in range(len(self._waiting)):
                self._make(self._waiting.popleft())
        finally:
            self._is_making = False


class OwnNumbers:
    """Those of one rank. Used by the training thread."""

    def __init__(
        self,
        instruments: Instruments,
        output: RowOutput,
        given: UserNumbers,
        *,
        is_leader: bool,
    ) -> None:
        """Only the leader records what is the same on all ranks. `given` are the program's
        metrics."""
        self._guard = instruments.guard
        self._governor = instruments.governor
        self._sensors = instruments.sensors
        self._output = output
        self._given = given
        self._is_leader = is_leader

    def take(
        self, reading: Reading, step_time_s: float | None, tokens: int | None, lr_scale: float
    ) -> dict[str, Number]:
        """The metrics of the step that has ended."""
        numbers = self._pace(step_time_s, tokens) | self._output.numbers()
        if self._governor is not None:
            numbers |= self._governor.numbers()
        if self._sensors is not None:
            numbers |= self._sensors.take()
        guarded = {} if self._guard is None else self._guard.take()
        if self._is_leader:
            numbers |= {"lr_scale": lr_scale, **reading.numbers, **guarded}
            if self._given.has_moving_target:
                numbers["alternating"] = 1.0
        return numbers

    def _pace(self, step_time_s: float | None, tokens: int | None) -> dict[str, Number]:
        """The step's time in seconds, and tokens per second."""
        if step_time_s is None:
            return {}
        numbers: dict[str, Number] = {"step_time": step_time_s}
        counted = self._given.take_tokens(tokens, count)
        if counted is not None and step_time_s > 0:
            numbers["tokens_per_s"] = counted / step_time_s
        return numbers


log = OwnLog(__name__)


class RowMaker:
    """One rank's rows. Used by the training thread; `log` may be called from any thread.

    With an accelerator a row is complete some steps later, so the rows sent at a boundary may
    belong to earlier steps.
    """

    def __init__(
        self,
        probe: Probe,
        faults: Faults,
        reports: Reports,
        output: RowOutput,
        *,
        is_leader: bool,
        instruments: Instruments,
    ) -> None:
        """Only the leader records what is the same on all ranks."""
        self._probe = probe
        self._faults = faults
        self._reports = reports
        self._output = output
        self._is_leader = is_leader
        self._guard = instruments.guard
        self._witness = instruments.witness
        self._detail = instruments.detail
        self._own_time = instruments.own_time
        self._governor = instruments.governor
        self._row_turns = RowTurns(self._make_logged)
        self._assembly = RowAssembly(faults)
        self._own_names = ReservedNames()
        if instruments.sensors is not None:
            self._own_names.add(instruments.sensors.names)
        self._given = UserNumbers(faults)
        self._timer = StepTimer()
        self._own_numbers = OwnNumbers(instruments, output, self._given, is_leader=is_leader)
        self._guarded_steps = GuardedSteps(reports)
        self._is_healthy = True
        self._segment = 0

    @property
    def num_lost(self) -> int:
        """Rows that lost their stats or their requested detail, since the beginning of the run."""
        return self._assembly.num_lost + (0 if self._detail is None else self._detail.num_lost)

    def begin_step(self) -> None:
        self._timer.begin(time.monotonic())
        named = self._probe.named
        if self._own_time is not None and named:
            self._own_time.begin(named[0].tensor.device)

    def pause(self) -> None:
        """What follows, until `go_on`, does not count as step time."""
        self._timer.pause(time.monotonic())
        if self._own_time is not None:
            self._own_time.disturb()

    def go_on(self) -> None:
        self._timer.go_on(time.monotonic())

    def take_health(self) -> bool:
        """Whether all rows sent since the last call were healthy. Late rows from before a rollback
        do not count: they say nothing about states saved since."""
        was_healthy, self._is_healthy = self._is_healthy, True
        return was_healthy

    def record(
        self,
        step: int,
        segment: int,
        loss: Loggable | None,
        tokens: int | None,
        metrics: Mapping[str, Loggable],
        *,
        lr_scale: float,
    ) -> None:
        """Make the row of a step that has ended, and send all rows that are complete."""
        with self._row_turns.turn():
            self._segment = segment
            governor, now = self._governor, time.time()
            if governor is None:
                self._make(step, segment, now, loss, tokens, metrics, lr_scale)
                return
            seeing_s = governor.meter.take()
            with governor.meter:
                made = self._make(step, segment, now, loss, tokens, metrics, lr_scale)
            making_s = governor.meter.take()
            if made is not None:
                reading, step_time_s = made
                change = governor.note(seeing_s + making_s, step_time_s + making_s, reading.sampled)
                if change is not None:
                    self._reports.tell_event(step, "sampling", now, change.detail())

    def record_broken_off(self, step: int, segment: int) -> None:
        """Record the step in which the program failed, if its gradients are known to be non-finite.
        They usually caused the failure, and would appear in no other row."""
        if not self._probe.is_broken:
            return
        with self._row_turns.turn():
            reading = self._probe.take()
            numbers = dict(reading.numbers) if self._is_leader else {}
            numbers |= self._end_step(step, segment, reading).numbers
            self._assembly.add(step, segment, time.time(), numbers, reading)
            self._send()

    def _make(
        self,
        step: int,
        segment: int,
        now: float,
        loss: Loggable | None,
        tokens: int | None,
        metrics: Mapping[str, Loggable],
        lr_scale: float,
    ) -> tuple[Reading, float] | None:
        """The reading and the step's seconds, or None if the step's cost is not typical."""
        # The loss goes first: if there are too many metrics, the last ones are left out.
        theirs = self._numbers(metrics if loss is None else {"loss": loss, **metrics})
        step_time_s = self._timer.lap(time.monotonic())
        reading = self._probe.take()
        numbers = self._own_numbers.take(reading, step_time_s, tokens, lr_scale)
        notes = self._end_step(step, segment, reading)
        numbers |= notes.numbers
        if self._guard is not None:
            self._reports.tell_unwatched(self._guard.take_notices(), step, now)
        self._claim(numbers, reading)
        numbers |= self._own_names.apart(theirs)
        self._reports.tell_renamed(self._own_names.untold(), step, now)
        self._reports.tell_omissions(self._output.take_omissions(), step, now)
        if self._is_leader:
            self._tell_coverage(reading, notes, step, now)
        self._output.sample_replicas(step, self._probe.named)
        closeup = self._closeup(step, now)
        own_time = None if self._own_time is None else self._own_time.take()
        self._assembly.add(step, segment, now, numbers, reading, closeup, own_time)
        self._send()
        # Detail is not a usual cost, and sharded tensors are read at every step on every rank.
        if step_time_s is None or closeup is not None or reading.sharing is not None:
            return None
        return reading, step_time_s

    def _end_step(self, step: int, segment: int, reading: Reading) -> StepNotes:
        """What the observers add to the row, and report."""
        end = StepEnd(
            step=step,
            segment=segment,
            now=time.monotonic(),
            saw_gradients=reading.layout is not None,
            named=self._probe.named,
            is_sharded=reading.sharing is not None,
            optimizers=self._probe.optimizers,
        )
        return self._probe.observers.end_step(end)

    def _claim(self, numbers: Iterable[str], reading: Reading) -> None:
        """Reserve the names of the hook's metrics, including those whose values arrive later."""
        self._own_names.add(numbers)
        if self._own_time is not None:
            self._own_names.add(["own_time"])
        if "clip_coef" in numbers:
            self._own_names.add(["clipped"])
        if reading.layout is not None:
            self._own_names.add(SUMMED_METRICS)

    def log(self, step: int, segment: int, metrics: Mapping[str, Loggable]) -> None:
        """Record a row that contains only the user's metrics. May be called from any thread."""
        numbers = self._own_names.apart(self._numbers(metrics))
        if numbers:
            self._row_turns.put(Logged(step, segment, time.time(), numbers))

    def _make_logged(self, logged: Logged) -> None:
        self._segment = logged.segment
        reading = Reading(layout=None, stats={}, numbers={}, stage=None)
        with self._faults.guard("log"):  # or a fault would cost the step within which it is made
            place = logged.step, logged.segment, logged.at
            self._assembly.add(*place, logged.numbers, reading, is_logged=True)
            self._send()

    def send_last(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` for numbers from accelerators and send the last rows. Returns
        whether all of them arrived."""
        self._row_turns.make_waiting()
        self._assembly.wait(timeout_s)
        self._send()
        num_missing = self._assembly.drop_open()
        if num_missing:
            log.warning(
                "a device has not answered in %.0f s: the last %d steps are left out",
                timeout_s,
                num_missing,
            )
        return num_missing == 0

    def _tell_coverage(self, reading: Reading, notes: StepNotes, step: int, now: float) -> None:
        """Report where gradients were read, what is not watched, and what changed."""
        self._reports.tell_stage(reading, step, now)
        notices = [*reading.notices, *notes.notices, *self._output.take_notices()]
        self._reports.tell_unwatched(notices, step, now)
        self._reports.tell_changes(reading.changes, step, now)
        self._reports.tell_omissions(notes.omissions, step, now)

    def _closeup(self, step: int, now: float) -> Closeup | None:
        if self._detail is None:
            return None
        closeup: Closeup | None = None
        with self._faults.guard("detail", self._detail.close):
            closeup = self._detail.end_step()
            self._reports.tell_unwatched(self._detail.take_notices(), step, now)
        return closeup

    def _numbers(self, metrics: Mapping[str, Loggable]) -> dict[str, Number]:
        """The user's metrics as numbers; what cannot be converted is left out."""
        return self._given.take(metrics, number)

    def _send(self) -> None:
        rows = self._assembly.finished()
        if any(row.segment == self._segment and not is_healthy(row) for row in rows):
            self._is_healthy = False
        if self._governor is not None:
            was_read = any("nonfinite" in row.metrics for row in rows)
            is_alarmed = self._governor.is_alarmed and not was_read
            self._governor.is_alarmed = is_alarmed or any(map(is_broken, rows))
        self._guarded_steps.look(rows)
        for row in rows:
            self._reports.tell_observed(self._probe.observers.on_row(row))
        if self._witness is not None:
            with self._faults.guard("bundle", self._witness.disable):
                self._witness.look(rows)
        self._output.put_rows(rows)
