"""A watch that does nothing: for RUNWATCH_DISABLED, for ended runs, for ranks not watched."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from runwatch.vocabulary import RunId
from runwatch_hooks.lifecycle.run_end import Status
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.watch import Loggable, StepReport, Watch

log = OwnLog(__name__)


class InertWatch(Watch):
    """Counts steps, so that a loop over `steps` trains as many as it would with a real watch."""

    def __init__(
        self,
        run_id: RunId,
        state: Mapping[str, object] | None = None,
        next_step: int | None = None,
        *,
        is_stopping: bool = False,
        unwatched_since: str = "",
    ) -> None:
        """`state` is a `state_dict` of any watch; `next_step` takes precedence over the one in it.
        `is_stopping`: a stop was requested. `unwatched_since` is the reason for a warning in
        `resume`; empty: no warning."""
        self.run_id = run_id
        self._next_step = 0
        self._num_boundaries = 0
        self._is_stopping = is_stopping
        self._unwatched_since = unwatched_since
        self._state: Mapping[str, object] = {}
        if state is not None:
            self.load_state_dict(state)
        if next_step is not None:
            self._next_step = next_step

    @property
    def next_step(self) -> int:
        return self._next_step

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    def step(
        self,
        loss: Loggable | None = None,
        *,
        tokens: int | None = None,
        **metrics: Loggable,
    ) -> StepReport:
        self._next_step += 1
        self._num_boundaries += 1
        return StepReport(step=self._next_step - 1)

    def log(self, **metrics: Loggable) -> None:
        pass

    def note_batch(self, batch: object) -> None:
        pass

    @contextmanager
    def phase(self, name: str) -> Generator[None, None, None]:
        yield

    def resume(self) -> int | None:
        """Loads nothing and returns None, with a warning, as the training would start over."""
        why, self._unwatched_since = self._unwatched_since, ""
        if why:
            log.warning(
                "resume: %s, so nothing is resumed and the training starts over, unless it "
                "loads a state itself; checkpoints stay where they are",
                why,
            )
        return None

    def state_dict(self) -> dict[str, object]:
        """What was loaded, with the current step, so that a later attempt can continue from it."""
        return {**self._state, "run_id": self.run_id, "next_step": self._next_step}

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        self._state = dict(state_dict)
        next_step = state_dict.get("next_step")
        self._next_step = next_step if isinstance(next_step, int) else 0

    def finish(self, status: Status = "finished", *, reason: str = "") -> None:
        pass
