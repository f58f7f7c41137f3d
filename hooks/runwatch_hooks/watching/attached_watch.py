"""The watch that `attach` returns: a proxy that releases everything when the run ends.

A program, such as a notebook, may keep a watch long after the run. Without this, it would keep the
model, the optimizer and all snapshots in memory.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TypeVar
from weakref import WeakMethod

from runwatch.vocabulary import RunId
from runwatch_hooks.lifecycle.run_end import Status
from runwatch_hooks.watch import Loggable, StepReport, Watch
from runwatch_hooks.watching.inert_watch import InertWatch
from runwatch_hooks.watching.live_watch import LiveWatch

_Batch = TypeVar("_Batch")


class AttachedWatch(Watch):
    """Forwards every call to a LiveWatch, and after the run's end to an InertWatch.

    If a signal handler ends the run in the middle of a call, that call still finishes on the
    LiveWatch.
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
