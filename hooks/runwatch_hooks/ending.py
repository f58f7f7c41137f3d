"""The beginning and end of a watched run, and what it leaves to be sent.

A run ends by `finish`, with the program, with the thread that trains, or because the program
dropped its watch and trains another run.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from threading import Thread
from typing import Concatenate, Final, Generic, ParamSpec, TypeVar
from weakref import ReferenceType, WeakKeyDictionary, ref

from torch import nn

from runwatch.vocabulary import RunId
from runwatch_hooks.boundary import Boundary
from runwatch_hooks.bundles import Witness
from runwatch_hooks.exit_causes import (
    EndsWithItsBlock,
    Fatal,
    ProgramExit,
    Status,
    ending_by,
    ending_of,
    fatal_of,
    reason_of,
)
from runwatch_hooks.faults import Faults
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.reports import Channel, Progress, Reports
from runwatch_hooks.state import Notes
from runwatch_hooks.step.instruments import Instruments
from runwatch_hooks.step.open_rows import RowOutput
from runwatch_hooks.step.probe import Probe
from runwatch_hooks.step.row_builder import RowMaker

_CLOSE_TIMEOUT_S: Final = 10.0
DEVICE_TIMEOUT_S: Final = 10.0
"""How long to wait for a device to finish the last steps."""
_HANGS_TIMEOUT_S: Final = 1.0
_LEAVE_TIMEOUT_S: Final[dict[Status, float]] = {"finished": 5.0, "stopped": 5.0, "failed": 1.0}
"""How long to wait for the other ranks' last rows. A rank that failed cannot count on them."""


class Shutdown:
    """The shutdown of one watch. No method raises."""

    def __init__(
        self,
        rows: RowMaker,
        boundary: Boundary,
        output: RowOutput,
        reports: Reports,
        faults: Faults,
        witness: Witness | None,
    ) -> None:
        self._rows = rows
        self._boundary = boundary
        self._output = output
        self._reports = reports
        self._faults = faults
        self._witness = witness
        self._is_device_lost = False
        """A collective has failed, and a device may wait for it forever."""
        self.does_device_hang = False
        """A device did not answer when the run ended."""

    def note_fatal(self, fatal: Fatal, step: int, reason: str) -> None:
        """Report an error that ends the training after `step`."""
        self._is_device_lost = fatal is Fatal.COLLECTIVE_ERROR
        with self._faults.guard("fatal"):
            self._reports.tell_event(step, fatal, time.time(), {"error": reason})

    def note_broken_off(self, step: int, segment: int) -> None:
        """The training has failed, in or before this step."""
        with self._faults.guard("broken step"):
            self._rows.record_broken_off(step, segment)

    def send(self, status: Status, reason: str, *, next_step: int) -> None:
        """Send everything that is left. Waits for the network, for other ranks and for devices."""
        self._send_what_is_open(next_step)
        with self._faults.guard("ranks"):
            self._output.close(_LEAVE_TIMEOUT_S[status])
        with self._faults.guard("finish"):
            last_step = max(next_step - 1, 0)
            self._reports.tell_faults(last_step, time.time(), num_lost=self._rows.num_lost)
            if status == "finished" and self._boundary.is_stopping:
                status = "stopped"
            self._reports.close(status, _CLOSE_TIMEOUT_S, reason=reason)

    def send_at_exit(self, status: Status, reason: str) -> None:
        """The process ends: send the end only. A device is not waited for; it may be the cause."""
        with self._faults.guard("exit"):
            self._reports.close(status, _CLOSE_TIMEOUT_S, reason=reason)

    @property
    def _patience_s(self) -> float:
        """How long to wait for files being written. Short if a device hangs: their contents would
        have to come from it."""
        return _HANGS_TIMEOUT_S if self.does_device_hang else _CLOSE_TIMEOUT_S

    def _send_what_is_open(self, next_step: int) -> None:
        """Finish what is in progress: commands, rows, a checkpoint, a bundle."""
        with self._faults.guard("last commands"):
            self._boundary.close()
        with self._faults.guard("last rows"):
            all_came = self._rows.send_last(0.0 if self._is_device_lost else DEVICE_TIMEOUT_S)
            self.does_device_hang = not all_came
        with self._faults.guard("last checkpoint"):
            closed = self._boundary.actor.close(
                next_step=next_step, now=time.time(), timeout_s=self._patience_s
            )
            self._reports.tell(closed)
        with self._faults.guard("last bundle"):
            if self._witness is not None:
                self._witness.close(self._patience_s)
                self._reports.tell(Notes(events=tuple(self._witness.events(time.time()))))


_Owner = TypeVar("_Owner")
_Arguments = ParamSpec("_Arguments")


class WeakOwner(Generic[_Owner]):
    """A weak reference to an object, through which others call its methods."""

    def __init__(self, owner: _Owner) -> None:
        self._owner = ref(owner)
        self._kept: _Owner | None = None

    @property
    def is_let_go(self) -> bool:
        """Whether the program has dropped the object and only `keep` holds it."""
        return self._kept is not None

    def keep(self, owner: _Owner) -> None:
        """The program has dropped the object; hold it until `release`, since work is left."""
        self._kept = owner

    def release(self) -> None:
        """The object's work is done: no longer hold it."""
        self._kept = None

    def call(
        self, method: Callable[Concatenate[_Owner, _Arguments], None]
    ) -> Callable[_Arguments, None]:
        """A callback for a method of the object's class. Does nothing once the object is gone."""

        def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
            owner = self._kept or self._owner()
            if owner is not None:
                method(owner, *args, **kwargs)

        return call


IDLE_AFTER_S: Final = 15.0
"""A run is idle after this long without a step while another run makes steps. Models trained in
alternation, such as a GAN's critic and generator, wait for each other far less, and the alert on
a missing step (StepOverdue) fires after 60 s at the earliest."""


class SiblingRun:
    """One open run among the others of its process.

    Several open runs in one program that trains one after another, such as folds or trials. While a
    later run trains, the earlier ones are idle: no step of them is due, although nobody ended them.
    The service must hear that, or it would alert on each as overdue. A run whose watch the program
    has dropped, as when a notebook cell is run again, ends instead, because nothing can step it any
    more.
    """

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


# A model has one watch: attaching it again, as in a notebook cell, ends the earlier one. The model
# may come in another wrapper than before (`DataParallel`, `torch.compile`), or inside a larger
# model. It counts as the same if the new watch covers every trainable parameter of the earlier
# one. Models that share only some parameters, such as an actor and a critic, keep a watch each.

_LIFETIMES: Final[WeakKeyDictionary[nn.Module, ReferenceType[Lifetime]]] = WeakKeyDictionary()
"""The module -> the lifetime of its watch, for all watches of the process. Module-level, because
two calls of `attach` have nothing but the process in common."""


def end_former(modules: Iterable[nn.Module], run: str) -> None:
    """End the watches on the same model, because `run` watches it from now on."""
    given = tuple(modules)
    trained = _trained_by(given)
    for lifetime, formers in _open_lifetimes():
        former = _trained_by(formers)
        is_same = bool(former) and former <= trained
        if is_same or any(one is other for one in formers for other in given):
            reason = f"its model was attached again, for the run {run!r}"
            log.warning("run %s is recorded as stopped: %s", lifetime.run_id, reason)
            lifetime.finish("stopped", reason=reason)


def note(modules: Iterable[nn.Module], lifetime: Lifetime) -> None:
    """Remember that these modules are watched by the watch with this lifetime."""
    for module in modules:
        _LIFETIMES[module] = ref(lifetime)


def _open_lifetimes() -> Iterator[tuple[Lifetime, list[nn.Module]]]:
    """Each open lifetime, with the modules that its watch was given."""
    found: dict[int, tuple[Lifetime, list[nn.Module]]] = {}
    for module, kept in list(_LIFETIMES.items()):
        lifetime = kept()
        if lifetime is not None and lifetime.is_open:
            found.setdefault(id(lifetime), (lifetime, []))[1].append(module)
    yield from found.values()


def _trained_by(modules: Iterable[nn.Module]) -> set[int]:
    return {id(one) for module in modules for one in module.parameters() if one.requires_grad}
