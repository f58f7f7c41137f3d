"""The watch of a run that is being trained: records rows and carries out commands."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Final, TypeVar, cast
from weakref import WeakMethod

from msgspec import MsgspecError
from torch import nn

from runwatch.errors import InvalidInputError
from runwatch.vocabulary import RunId
from runwatch_hooks.boundary import Boundary
from runwatch_hooks.ending import Lifetime, Shutdown
from runwatch_hooks.exit_causes import Status, text_of
from runwatch_hooks.faults import Faults
from runwatch_hooks.guard import Guard
from runwatch_hooks.loop import BatchPositions, LoopCompliance
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.ranks import Team
from runwatch_hooks.reports import Channel, Progress, Reports
from runwatch_hooks.state import ActionError, Actor
from runwatch_hooks.step.instruments import Instruments
from runwatch_hooks.step.observer import Observers
from runwatch_hooks.step.open_rows import RowOutput
from runwatch_hooks.step.probe import Probe
from runwatch_hooks.step.row_builder import RowMaker
from runwatch_hooks.step.torch_hooks import is_capturing
from runwatch_hooks.watch import InertWatch, Loggable, StepReport, Watch

# Of msgspec, an error of validation is a ValueError since 0.21 only.
_UNLOADABLE = (KeyError, TypeError, ValueError, RuntimeError, MsgspecError, ActionError)


class OwnState:
    """The next step, the actor's journal and LR scale, the guard's past, the observers' states."""

    def __init__(
        self,
        run_id: RunId,
        progress: Progress,
        actor: Actor,
        guard: Guard | None,
        observers: Observers,
    ) -> None:
        self._run_id = run_id
        self._progress = progress
        self._actor = actor
        self._guard = guard
        self._observers = observers

    def save(self, *, does_device_hang: bool) -> dict[str, object]:
        """The state as JSON values. The guard's lies on the device: if that hangs, it is left out,
        as reading it would hang too."""
        guard = None if does_device_hang else self._guard
        return {
            "run_id": self._run_id,
            "next_step": self._progress.next_step,
            "actor": self._actor.state_dict(),
            "guard": {} if guard is None else guard.state_dict(),
            **self._observers.state_dict(),
        }

    def load(self, saved: Mapping[str, object]) -> None:
        """Raises InvalidInputError, with nothing changed, if it is not what `save` returned."""
        next_step, actor = saved.get("next_step"), saved.get("actor")
        past = saved.get("guard", {})
        is_whole = isinstance(actor, dict | None) and isinstance(past, dict)
        if not isinstance(next_step, int) or not is_whole:
            raise InvalidInputError(
                f"state_dict: found the keys {sorted(saved)}, wanted what a watch returned"
            )
        try:
            self._load(cast("dict[str, object] | None", actor), cast("dict[str, object]", past))
        except _UNLOADABLE as error:
            found = f"{type(error).__name__}: {error}"
            raise InvalidInputError(
                f"state_dict: found {found}, wanted what a watch returned"
            ) from error
        self._progress.next_step = next_step
        self._observers.load_state_dict(saved, next_step)

    def _load(self, actor: dict[str, object] | None, past: dict[str, object]) -> None:
        """Load both states, or neither if one of them does not fit."""
        if actor is not None:  # None: the state comes from a run that was not watched
            self._actor.check_state_dict(actor)
        if self._guard is not None:
            self._guard.load_state_dict(past)
        if actor is not None:
            self._actor.load_state_dict(actor)


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
        open_channel: Callable[[int], Channel],
        team: Team,
        instruments: Instruments,
        modules: Mapping[str, nn.Module],
        loader: object | None = None,
    ) -> None:
        """`open_channel` opens the channel to the service, given the first step to be trained;
        `modules` are those whose copies on other ranks are compared with these;
        `loader` is the data loader whose position a rollback sets."""
        self.run_id = run_id
        self._probe = probe
        self._faults = faults
        self._boundary = boundary
        self._actor = boundary.actor
        self._reports = reports
        self._instruments = instruments
        is_leader = team.world.is_leader
        output = RowOutput(team, faults, reports.put_row, modules)
        probe.on_first_step = output.begin_replicas
        self._rows = RowMaker(
            probe, faults, reports, output, is_leader=is_leader, instruments=instruments
        )
        self._shutdown = Shutdown(
            self._rows, boundary, output, reports, faults, instruments.witness
        )
        self._progress = Progress(reports, boundary.actor, is_leader=is_leader)
        self._own_state = OwnState(
            run_id, self._progress, boundary.actor, instruments.guard, probe.observers
        )
        self.lifetime: Final = Lifetime(
            run_id,
            open_channel=open_channel,
            progress=self._progress,
            reports=reports,
            output=output,
            boundary=boundary,
            probe=probe,
            instruments=instruments,
            shutdown=self._shutdown,
            faults=faults,
        )
        self._loader = loader
        self._positions = BatchPositions()
        self._compliance = LoopCompliance()
        self._num_boundaries = 0
        self._has_told_capture = False

    @property
    def next_step(self) -> int:
        self._compliance.note("rolled_back_to")
        return self._progress.next_step

    @property
    def is_stopping(self) -> bool:
        self._compliance.note("stop")
        return self._boundary.is_stopping

    @property
    def num_faults(self) -> int:
        """The number of the hook's faults that were kept from the training."""
        return self._faults.count

    def begin(self, first_step: int | None = None) -> None:
        """Begin the run, if it has not begun: see `Lifetime.begin`."""
        if self.lifetime.begin(first_step):
            self._begin_step()

    def step(
        self,
        loss: Loggable | None = None,
        *,
        tokens: int | None = None,
        **metrics: Loggable,
    ) -> StepReport:
        progress = self._progress
        if self._is_captured("watch.step"):
            return StepReport(step=progress.next_step)
        step = progress.next_step
        progress.next_step += 1
        self._num_boundaries += 1
        if not self.lifetime.is_open:
            return StepReport(step=step)
        self.begin(step)
        self.lifetime.go_on()
        with self._faults.guard("row", self._probe.remove):
            self._rows.record(
                step, progress.segment, loss, tokens, metrics, lr_scale=self._actor.lr_scale
            )
        with self._faults.guard("forward", self._probe.forwards.remove):
            self._probe.forwards.end_step(step, progress.segment)
        rolled_back_to: int | None = None
        with self._faults.guard("boundary"):
            rolled_back_to = self._act(step)
        with self._faults.guard("progress"):
            self.lifetime.note_trained()
            progress.train()
            self._reports.tell_faults(progress.last_step, time.time(), num_lost=self._rows.num_lost)
            self._rows.begin_step()
        self._begin_step()
        if rolled_back_to is not None:
            self._boundary.raise_interrupt()
        return self._compliance.observed(
            StepReport(
                step=step,
                rolled_back_to=rolled_back_to,
                lr_scale=self._actor.lr_scale,
                stop=self._boundary.is_stopping,
                checkpoint_asked=self._boundary.checkpoint_asked,
            )
        )

    def batches(self, loader: Iterable[_Batch]) -> Iterator[_Batch]:
        if loader is self._loader:
            batches = self._positions.over(loader, self._begin_pass)
        else:
            batches = self._positions.over_any(loader, self._tell_unpositioned)
        for batch in batches:
            self.note_batch(batch)
            self._compliance.note("rolled_back_to")  # another loader gets a notice of its own
            yield batch
            if self._boundary.is_stopping:  # ends this epoch; an outer loop must ask for itself
                return

    def _begin_pass(self) -> None:
        """The first batch is taken next. Save the state from which the run starts again, as it is
        now: since `attach` the program may have seeded its random generators, and the loader's
        iterator has drawn from them."""
        if self._num_boundaries or not self.lifetime.is_open:
            return
        if not self.lifetime.is_begun:
            self.begin()
            return
        with self._faults.guard("begin"):
            self._actor.begin(self._progress.next_step)

    def note_batch(self, batch: object) -> None:
        witness = self._instruments.witness
        if witness is not None and self.lifetime.is_open and not is_capturing():
            self.begin()
            with self._faults.guard("bundle", witness.disable):
                witness.note_batch(batch)

    def _begin_step(self) -> None:
        """The next step is about to be trained; reports bundles written for earlier ones."""
        progress = self._progress
        self._instruments.begin_step(
            progress.next_step, progress.segment, self._faults, self._reports.tell
        )

    def _tell_unpositioned(self, notice: str) -> None:
        with self._faults.guard("batches"):
            self._reports.tell_unwatched([notice], self._progress.last_step, time.time())

    def log(self, **metrics: Loggable) -> None:
        if not self.lifetime.is_open or self._is_captured("watch.log"):
            return
        self.begin()
        with self._faults.guard("log"):
            progress = self._progress
            step, segment = self._probe.forwards.step_of_log(progress.next_step, progress.segment)
            self._rows.log(step, segment, metrics)

    @contextmanager
    def phase(self, name: str) -> Generator[None, None, None]:
        name = text_of(name)
        self._enter_phase(name)
        try:
            yield
        finally:
            self._leave_phase(name)

    def _enter_phase(self, name: str) -> None:
        if self.lifetime.is_open:
            self.begin()
            with self._faults.guard("phase"):
                self._rows.pause()
                self._progress.enter(name)

    def _leave_phase(self, name: str) -> None:
        if self.lifetime.is_open and self._progress.is_in_phase:
            with self._faults.guard("phase"):
                self._rows.go_on()
                self._progress.leave(name)

    def resume(self) -> int | None:
        next_step = self._boundary.resume()
        if next_step is not None:
            self._progress.next_step = next_step
            log.info("resumed: step %d comes next", next_step)
        self.begin()
        return next_step

    def state_dict(self) -> dict[str, object]:
        return self._own_state.save(does_device_hang=self._shutdown.does_device_hang)

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        self._own_state.load(state_dict)

    def __deepcopy__(self, memo: dict[int, object]) -> "LiveWatch":
        """The same watch: a program that copies the object holding it still trains one run."""
        return self

    def __reduce__(self) -> tuple[type[InertWatch], tuple[RunId]]:
        """Unpickles as an InertWatch: another process does not watch this run."""
        return InertWatch, (self.run_id,)

    def finish(self, status: Status = "finished", *, reason: str = "") -> None:
        self.lifetime.finish(status, reason=reason)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.lifetime.__exit__(kind, error, traceback)

    def __del__(self) -> None:
        if hasattr(self, "lifetime"):  # false if `__init__` failed
            self.lifetime.let_go()

    def _is_captured(self, call: str) -> bool:
        """Whether a CUDA graph is being captured, reported once. No step is trained during capture
        and the device must not be queried, so the call does nothing."""
        if not self.lifetime.is_open or not is_capturing():
            return False
        if not self._has_told_capture:
            self._has_told_capture = True
            notice = f"{call} was called while a CUDA graph was captured: call it after a replay"
            self._reports.tell_unwatched([notice], self._progress.last_step, time.time())
        return True

    def _act(self, step: int) -> int | None:
        """Do what is due after a step. Returns the step to train next after a rollback, or None."""
        self._reports.tell_unheeded(self._compliance.end_step(), step, time.time())
        was_stopping = self._boundary.is_stopping
        rolled_back_to = self._boundary.act(step, self._reports, healthy=self._rows.take_health())
        if self._boundary.is_stopping and not was_stopping:
            self._compliance.expect("stop")
        self._positions.end_step(step)
        if rolled_back_to is not None:
            self._compliance.expect("rolled_back_to")
            self._progress.go_back(rolled_back_to)
            if self._instruments.detail is not None:
                self._instruments.detail.forget(rolled_back_to)
            num_left_out = self._positions.go_back(rolled_back_to, self._boundary.fault_step)
            if num_left_out:
                detail = {"of_step": self._boundary.fault_step, "batches": num_left_out}
                self._reports.tell_event(step, "batches_left_out", time.time(), detail)
        return rolled_back_to


class AttachedWatch(Watch):
    """Forwards every call to a LiveWatch, and after the run's end to an InertWatch.

    If a signal handler ends the run in the middle of a call, that call still finishes on the
    LiveWatch.

    The watch that `attach` returns: a proxy that releases everything when the run ends. A program,
    such as a notebook, may keep a watch long after the run. Without this, it would keep the model,
    the optimizer and all snapshots in memory.
    """

    def __init__(self, live: LiveWatch) -> None:
        self.run_id = live.run_id
        self._num_boundaries = 0
        self._watch: LiveWatch | InertWatch = live
        self._num_faults = 0
        let_go = WeakMethod(self._let_go)  # a strong one would keep a dropped watch alive

        def on_end() -> None:
            if (found := let_go()) is not None:
                found()

        live.lifetime.on_end = on_end

    @property
    def next_step(self) -> int:
        return self._watch.next_step

    @property
    def is_stopping(self) -> bool:
        return self._watch.is_stopping

    @property
    def num_faults(self) -> int:
        """The number of the hook's faults that were kept from the training."""
        watch = self._watch
        return watch.num_faults if isinstance(watch, LiveWatch) else self._num_faults

    def step(
        self,
        loss: Loggable | None = None,
        *,
        tokens: int | None = None,
        **metrics: Loggable,
    ) -> StepReport:
        self._num_boundaries += 1
        return self._watch.step(loss, tokens=tokens, **metrics)

    def batches(self, loader: Iterable[_Batch]) -> Iterator[_Batch]:
        return self._watch.batches(loader)

    def log(self, **metrics: Loggable) -> None:
        self._watch.log(**metrics)

    def note_batch(self, batch: object) -> None:
        self._watch.note_batch(batch)

    def phase(self, name: str) -> AbstractContextManager[None]:
        return self._watch.phase(name)

    def resume(self) -> int | None:
        return self._watch.resume()

    def state_dict(self) -> dict[str, object]:
        return self._watch.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        self._watch.load_state_dict(state_dict)

    def finish(self, status: Status = "finished", *, reason: str = "") -> None:
        self._watch.finish(status, reason=reason)

    def __deepcopy__(self, memo: dict[int, object]) -> "AttachedWatch":
        """The same watch: a program that copies the object holding it still trains one run."""
        return self

    def __reduce__(self) -> tuple[type[InertWatch], tuple[RunId]]:
        """Unpickles as an InertWatch: another process does not watch this run."""
        return InertWatch, (self.run_id,)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._watch.__exit__(kind, error, traceback)

    def _let_go(self) -> None:
        """The run has ended and everything is sent: release what it used."""
        live = self._watch
        if isinstance(live, LiveWatch):
            self._num_faults = live.num_faults
            self._watch = InertWatch(live.run_id, live.state_dict(), is_stopping=live.is_stopping)
