"""The beginning and end of a watched run.

A run ends by `finish`, with the program, with the thread that trains, or because the program
dropped its watch and trains another run.
"""

import os
import time
from collections.abc import Callable
from threading import Thread

from runwatch.vocabulary import RunId
from runwatch_hooks.faults import Faults
from runwatch_hooks.lifecycle.program_exit import ProgramExit
from runwatch_hooks.lifecycle.run_end import (
    EndsWithItsBlock,
    Status,
    ending_by,
    ending_of,
    fatal_of,
    reason_of,
)
from runwatch_hooks.lifecycle.sibling_runs import SiblingRun
from runwatch_hooks.lifecycle.weak_owner import WeakOwner
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.reporting.channel import Channel
from runwatch_hooks.reporting.progress import Progress
from runwatch_hooks.reporting.reports import Reports
from runwatch_hooks.step.instruments import Instruments
from runwatch_hooks.step.open_rows import RowOutput
from runwatch_hooks.step.probe import Probe
from runwatch_hooks.watching.boundary import Boundary
from runwatch_hooks.watching.shutdown import Shutdown

log = OwnLog(__name__)


class Lifetime(EndsWithItsBlock):
    """The lifetime of one watch. In a forked child process it counts as ended."""

    def __init__(
        self,
        run_id: RunId,
        *,
        open_channel: Callable[[int], Channel],
        progress: Progress,
        reports: Reports,
        output: RowOutput,
        boundary: Boundary,
        probe: Probe,
        instruments: Instruments,
        shutdown: Shutdown,
        faults: Faults,
    ) -> None:
        """`open_channel` opens the channel to the service, given the first step to be trained."""
        self.run_id = run_id
        self.on_end: Callable[[], None] = lambda: None
        """Called when the run has ended and everything is sent."""
        self._open_channel = open_channel
        self._progress = progress
        self._reports = reports
        self._output = output
        self._boundary = boundary
        self._probe = probe
        self._instruments = instruments
        self._shutdown = shutdown
        self._faults = faults
        self._weak_self = weak_self = WeakOwner(self)
        self._program_exit = ProgramExit(
            weak_self.call(Lifetime._close_at_exit), weak_self.call(Lifetime._end_by)
        )
        self._sibling = SiblingRun(
            weak_self.call(Lifetime._wait_for_another),
            lambda: weak_self.is_let_go,
            weak_self.call(Lifetime._end_let_go),
        )
        self._pid = os.getpid()
        self._is_begun = False
        self._is_ended = False

    @property
    def is_open(self) -> bool:
        """Whether the run has not ended, and this is the process that opened it."""
        return not self._is_ended and os.getpid() == self._pid

    @property
    def is_begun(self) -> bool:
        return self._is_begun

    def begin(self, first_step: int | None = None) -> bool:
        """Open the channel, and save the state from which the run starts. Only the first call does
        so; returns whether this was it.

        `first_step` is the attempt's first step, if the run begins only at the end of that step.
        None: the next step.
        """
        if self._is_begun or not self.is_open:
            return False
        self._is_begun = True
        with self._faults.guard("begin"):
            next_step = self._progress.next_step
            self._reports.open(self._open_channel(next_step if first_step is None else first_step))
            self._program_exit.install()
            self._sibling.join()
            self._output.open()
            if self._instruments.sensors is not None:
                self._instruments.sensors.start()
            self._progress.tell()
            self._boundary.begin(next_step)
        return True

    def go_on(self) -> None:
        """Another step was trained, so that earlier exits and errors were caught."""
        self._program_exit.go_on()

    def note_trained(self) -> None:
        """A step was trained; tells the program's other runs, which were not trained meanwhile."""
        self._sibling.trained()

    def finish(self, status: Status = "finished", *, reason: str = "") -> None:
        if not self.is_open:
            return
        status, reason = ending_of(status, reason)
        self.begin()
        self._note_broken_off(status)
        self._stand_down()
        self._send_last(status, reason)

    def give_up(self) -> None:
        """The watch could not be built. If the run has not begun, the service never hears of it."""
        if self._is_begun:
            self.finish("failed", reason="its watch could not be made")
        else:
            self._discard()

    def let_go(self) -> None:
        """The program has dropped its watch. A run that has begun stays open until the program
        trains another run or ends, since only then is it known how it ended."""
        if not self.is_open:
            return
        if self._is_begun:
            self._weak_self.keep(self)
        else:
            self._discard()

    def _discard(self) -> None:
        """End a run that has not begun."""
        self._stand_down()
        with self._faults.guard("end"):
            self._boundary.actor.close(
                next_step=self._progress.next_step, now=time.time(), timeout_s=0.0
            )

    def _stand_down(self) -> None:
        """No more steps: remove all hooks and patches from torch."""
        self._is_ended = True
        with self._faults.guard("end"):
            self._program_exit.remove()
            self._sibling.leave()
        with self._faults.guard("end of the probe"):
            self._probe.remove()
        self._probe.observers.detach()
        self._instruments.remove(self._faults)

    def _send_last(self, status: Status, reason: str) -> None:
        try:
            self._shutdown.send(status, reason, next_step=self._progress.next_step)
        finally:  # also if Ctrl-C ends the waiting
            self._weak_self.release()
            with self._faults.guard("let go"):
                self.on_end()

    def _wait_for_another(self) -> None:
        """The program is training another run now: this one is idle."""
        if self.is_open:
            with self._faults.guard("progress"):
                self._progress.wait()

    def _end_let_go(self) -> None:
        """Another run is trained, and this one's watch was dropped: end it."""
        with self._faults.guard("let go"):
            status, reason = ending_by(self._program_exit.error())
            reason = reason or "the program dropped its watch and trains another run"
            log.info("run %s is recorded as %s: %s", self.run_id, status, reason)
            self._note_broken_off(status)
            self._stand_down()
            Thread(
                target=self._send_last, args=(status, reason), name="runwatch-last-words"
            ).start()

    def _note_fatal(self, error: BaseException) -> None:
        fatal = fatal_of(error)
        if fatal is not None and self.is_open:
            self._shutdown.note_fatal(fatal, self._progress.last_step, reason_of(error))

    def _note_broken_off(self, status: Status) -> None:
        if status == "failed":
            self._shutdown.note_broken_off(self._progress.next_step, self._progress.segment)

    def _close_at_exit(self, error: BaseException | None) -> None:
        """The process ends, with this error or normally."""
        status, reason = ending_by(error)
        if error is not None and status == "failed":
            self._note_fatal(error)
        self._note_broken_off(status)
        self._shutdown.send_at_exit(status, reason)
        self._is_ended = True
