"""The watch that watches: rows out, commands in, at each boundary between two steps."""

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from typing import TypeVar, cast

from runwatch.errors import InvalidInputError
from runwatch.vocabulary import Phase, RunId
from runwatch_hooks.actions import Notes
from runwatch_hooks.batches import BatchCourse
from runwatch_hooks.boundary import Boundary
from runwatch_hooks.company import Member
from runwatch_hooks.endings import Status, ending_by, ending_of, fatal_of, reason_of
from runwatch_hooks.faults import Faults
from runwatch_hooks.held import Held
from runwatch_hooks.inert import InertWatch
from runwatch_hooks.instruments import Instruments
from runwatch_hooks.last_words import LastWords
from runwatch_hooks.line import Line
from runwatch_hooks.outlet import Outlet
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.phases import Phases
from runwatch_hooks.program_exit import ProgramExit
from runwatch_hooks.ranks import Team
from runwatch_hooks.reports import Reports
from runwatch_hooks.row_maker import RowMaker
from runwatch_hooks.seeing.probe import Probe
from runwatch_hooks.watch import Loggable, StepReport, Watch
from runwatch_hooks.wrapping.graph_capture import is_capturing

log = OwnLog(__name__)

_Batch = TypeVar("_Batch")


class LiveWatch(Watch):
    """One process's watch, from `attach` to `finish`."""

    def __init__(
        self,
        run_id: RunId,
        *,
        probe: Probe,
        faults: Faults,
        boundary: Boundary,
        reports: Reports,
        open_line: Callable[[int], Line],
        team: Team,
        instruments: Instruments,
        loader: object | None = None,
    ) -> None:
        """`open_line` is given the number of the first step to be trained; `loader` is the one
        that a rollback positions."""
        self.run_id = run_id
        self.on_end: Callable[[], None] = lambda: None
        """Hears that the run has ended, and all of it is said."""
        self._is_leader = team.world.is_leader
        self._probe = probe
        self._faults = faults
        self._boundary = boundary
        self._actor = boundary.actor
        self._open_line = open_line
        self._reports = reports
        self._outlet = Outlet(team, faults, reports.put_row)
        self._rows = RowMaker(
            probe,
            faults,
            reports,
            self._outlet,
            is_leader=self._is_leader,
            instruments=instruments,
        )
        self._instruments = instruments
        self._witness = instruments.witness
        self._guard = instruments.guard
        self._detail = instruments.detail
        self._last_words = LastWords(
            self._rows, boundary, self._outlet, reports, faults, self._witness
        )
        self._held = held = Held(self)
        self._program_exit = ProgramExit(
            held.call(LiveWatch._close_at_exit), held.call(LiveWatch._end_by)
        )
        self._member = Member(
            held.call(LiveWatch._wait_for_another),
            lambda: held.is_let_go,
            held.call(LiveWatch._end_let_go),
        )
        self._pid = os.getpid()
        self._loader = loader
        self._course = BatchCourse()
        self._phases = Phases()
        self._next_step = 0
        self._segment = 0
        self._num_boundaries = 0
        self._is_begun = False
        self._is_finished = False
        self._has_told_capture = False

    @property
    def next_step(self) -> int:
        return self._next_step

    @property
    def is_stopping(self) -> bool:
        return self._boundary.is_stopping

    @property
    def is_open(self) -> bool:
        """Whether it has not ended yet, and this process is the one that it was made in."""
        return not self._is_inert

    @property
    def num_faults(self) -> int:
        """Faults of our own that were kept from the training."""
        return self._faults.count

    def begin(self, first_step: int | None = None) -> None:
        """Open the line, and keep the state that the run sets out from. Done once. `first_step` is
        the attempt's, where it is over by now: the program said nothing before its end."""
        if self._is_begun or self._is_inert:
            return
        self._is_begun = True
        with self._faults.guard("begin"):
            opened_at = self._next_step if first_step is None else first_step
            self._reports.open(self._open_line(opened_at))
            self._program_exit.install()
            self._member.join()
            self._outlet.open()
            if self._instruments.sensors is not None:
                self._instruments.sensors.start()
            self._tell_progress()
            self._boundary.begin(self._next_step)
        self._begin_step()

    def step(
        self,
        loss: Loggable | None = None,
        *,
        tokens: int | None = None,
        **metrics: Loggable,
    ) -> StepReport:
        if self._is_captured("watch.step"):
            return StepReport(step=self._next_step)
        step = self._next_step
        self._next_step += 1
        self._num_boundaries += 1
        if self._is_inert:
            return StepReport(step=step)
        self.begin(step)
        self._program_exit.go_on()
        with self._faults.guard("row", self._probe.remove):
            self._rows.record(
                step, self._segment, loss, tokens, metrics, lr_scale=self._actor.lr_scale
            )
        rolled_back_to: int | None = None
        with self._faults.guard("boundary"):
            rolled_back_to = self._act(step)
        with self._faults.guard("progress"):
            self._phases.settle(Phase.TRAIN)
            self._member.trained()
            self._tell_progress()
            self._tell_faults()
            self._rows.begin_step()
        self._begin_step()
        return StepReport(
            step=step,
            rolled_back_to=rolled_back_to,
            lr_scale=self._actor.lr_scale,
            stop=self._boundary.is_stopping,
            checkpoint_asked=self._boundary.checkpoint_asked,
        )

    def batches(self, loader: Iterable[_Batch]) -> Iterator[_Batch]:
        if loader is self._loader:
            batches = self._course.over(loader, self._begin_pass)
        else:
            batches = self._course.over_any(loader, self._tell_unpositioned)
        for batch in batches:
            self.note_batch(batch)
            yield batch
            if self.is_stopping:
                return

    def _begin_pass(self) -> None:
        """The first batch comes next. What the program sets out from is the state that it has now:
        it may have seeded its generators since `attach`, and the loader has drawn from them."""
        if self._num_boundaries or self._is_inert:
            return
        if not self._is_begun:
            self.begin()
            return
        with self._faults.guard("begin"):
            self._actor.begin(self._next_step)

    def note_batch(self, batch: object) -> None:
        if self._witness is not None and not self._is_inert and not is_capturing():
            self.begin()
            with self._faults.guard("bundle", self._witness.disable):
                self._witness.note_batch(batch)

    def _begin_step(self) -> None:
        """The next step is about to be trained; tells what was written about an earlier one."""
        if self._witness is not None:
            with self._faults.guard("bundle", self._witness.disable):
                self._witness.begin_step(self._next_step, self._segment)
                self._tell_bundles()
        if self._detail is not None:
            with self._faults.guard("detail", self._detail.close):
                self._detail.begin_step(self._next_step)

    def _tell_bundles(self) -> None:
        if self._witness is not None:
            events = self._witness.events(time.time())
            self._reports.tell(Notes(events=tuple(events)))

    def _tell_unpositioned(self, notice: str) -> None:
        with self._faults.guard("batches"):
            self._reports.tell_unwatched([notice], self._last_step or 0, time.time())

    def log(self, **metrics: Loggable) -> None:
        if self._is_inert or self._is_captured("watch.log"):
            return
        self.begin()
        with self._faults.guard("log"):
            self._rows.log(self._last_step or 0, self._segment, metrics)

    @contextmanager
    def phase(self, name: str) -> Generator[None, None, None]:
        self._enter_phase(name)
        try:
            yield
        finally:
            self._leave_phase(name)

    def resume(self) -> int | None:
        next_step = self._boundary.resume()
        if next_step is not None:
            self._next_step = next_step
            log.info("resumed: step %d comes next", next_step)
        self.begin()
        return next_step

    def state_dict(self) -> dict[str, object]:
        return {
            "run_id": self.run_id,
            "next_step": self._next_step,
            "actor": self._actor.state_dict(),
            "guard": {} if self._guard is None else self._guard.state_dict(),
            "norms": self._rows.weights.state_dict(),
        }

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        next_step, actor = state_dict.get("next_step"), state_dict.get("actor")
        if not isinstance(next_step, int) or not isinstance(actor, dict | None):
            raise InvalidInputError(
                f"state_dict: found the keys {sorted(state_dict)}, wanted what a watch returned"
            )
        self._next_step = next_step
        self._rows.weights.load_state_dict(state_dict.get("norms"), next_step)
        if actor is not None:  # else nothing watched in that life
            self._actor.load_state_dict(cast("dict[str, object]", actor))
        if self._guard is not None:
            self._guard.load_state_dict(cast("dict[str, object]", state_dict.get("guard", {})))

    def __deepcopy__(self, memo: dict[int, object]) -> "LiveWatch":
        """A program that copies what holds its watch still trains one run."""
        return self

    def __reduce__(self) -> tuple[type[InertWatch], tuple[RunId]]:
        """Pickled with what holds it, and read back by another process, it watches nothing."""
        return InertWatch, (self.run_id,)

    def finish(self, status: Status = "finished", *, reason: str = "") -> None:
        if self._is_inert:
            return
        status, reason = ending_of(status, reason)
        self.begin()
        self._stand_down()
        self._say_last(status, reason)

    def _stand_down(self) -> None:
        """No step comes any more: leave torch as it was."""
        self._is_finished = True
        with self._faults.guard("end"):
            self._program_exit.remove()
            self._member.leave()
        with self._faults.guard("end of the probe"):
            self._probe.remove()
        self._instruments.remove(self._faults)

    def _say_last(self, status: Status, reason: str) -> None:
        self._last_words.say(status, reason, next_step=self._next_step)
        self._held.release()
        if self._last_words.does_device_hang:
            self._guard = None  # to tell what it knows it would wait for the device
        with self._faults.guard("let go"):
            self.on_end()

    def __del__(self) -> None:
        """The program has let it go. What it has to say at its end it says later: as the program
        trains another run, or ends; by then it is known how."""
        if getattr(self, "_is_begun", False) and not self._is_inert:
            self._held.keep(self)

    def _end_let_go(self) -> None:
        """Another run is trained, by a program that can step this one no more."""
        with self._faults.guard("let go"):
            status, reason = ending_by(self._program_exit.error())
            reason = reason or "the program let its watch go, and trains another run"
            log.info("run %s is told as %s: %s", self.run_id, status, reason)
            self._stand_down()
            Thread(target=self._say_last, args=(status, reason), name="runwatch-last-words").start()

    def _note_fatal(self, error: BaseException) -> None:
        fatal = fatal_of(error)
        if fatal is not None and not self._is_inert:
            self._last_words.note_fatal(fatal, self._last_step or 0, reason_of(error))

    def _close_at_exit(self, error: BaseException | None) -> None:
        """The process ends, by this."""
        status, reason = ending_by(error)
        if error is not None and status == "failed":
            self._note_fatal(error)
        self._last_words.say_at_exit(status, reason)
        self._is_finished = True

    @property
    def _is_inert(self) -> bool:
        """After the end, and in a child made by fork: a loader's worker, say."""
        return self._is_finished or os.getpid() != self._pid

    def _is_captured(self, call: str) -> bool:
        """Whether a call of ours stands within the capture of a CUDA graph, where no step is
        trained and nothing may be asked of the device: it does nothing there, and says so once."""
        if self._is_inert or not is_capturing():
            return False
        if not self._has_told_capture:
            self._has_told_capture = True
            notice = f"{call} was called while a CUDA graph was captured: call it after a replay"
            self._reports.tell_unwatched([notice], self._last_step or 0, time.time())
        return True

    @property
    def _last_step(self) -> int | None:
        return self._next_step - 1 if self._next_step else None

    def _act(self, step: int) -> int | None:
        """Do what is due after a step; the step to train next, where the run went back."""
        rolled_back_to = self._boundary.act(step, self._reports, healthy=self._rows.take_health())
        self._course.end_step(step)
        if rolled_back_to is not None:
            self._next_step = rolled_back_to
            self._segment += 1
            if self._detail is not None:
                self._detail.forget(rolled_back_to)
            num_left_out = self._course.go_back(rolled_back_to, self._boundary.fault_step)
            if num_left_out:
                detail = {"of_step": self._boundary.fault_step, "batches": num_left_out}
                self._reports.tell_event(step, "batches_left_out", time.time(), detail)
        return rolled_back_to

    def _wait_for_another(self) -> None:
        """The program trains another run now."""
        if not self._is_inert:
            with self._faults.guard("progress"):
                self._phases.settle(Phase.IDLE)
                self._tell_progress()

    def _tell_progress(self) -> None:
        self._reports.tell_progress(self._last_step, self._phases.now, self._actor.lr_scale)

    def _tell_faults(self) -> None:
        self._reports.tell_faults(self._last_step or 0, time.time(), num_lost=self._rows.num_lost)

    def _enter_phase(self, name: str) -> None:
        if self._is_inert:
            return
        self.begin()
        with self._faults.guard("phase"):
            self._phases.enter(name)
            self._rows.pause()
            self._tell_progress()
            self._tell_phase(name, "begin")

    def _leave_phase(self, name: str) -> None:
        if self._is_inert or not self._phases.are_open:
            return
        with self._faults.guard("phase"):
            self._phases.leave()
            self._rows.go_on()
            self._tell_progress()
            self._tell_phase(name, "end")

    def _tell_phase(self, name: str, edge: str) -> None:
        if not self._is_leader:
            return
        detail = {"phase": name, "edge": edge}
        self._reports.tell_event(self._last_step or 0, "phase", time.time(), detail)
