"""A watch that does nothing: for RUNWATCH_DISABLED, and for ranks that cannot be watched."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from runwatch.vocabulary import RunId
from runwatch_hooks.lifecycle.run_end import Status
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.watch import Loggable, StepReport, Watch

log = OwnLog(__name__)


class InertWatch(Watch):
    """Counts steps, so that a loop over `steps` trains what it would have trained."""

    def __init__(
        self,
        run_id: RunId,
        state: Mapping[str, object] | None = None,
        next_step: int | None = None,
        *,
        is_stopping: bool = False,
        unwatched_since: str = "",
    ) -> None:
        """`state` is what a watch returned that watched, or one like this; `next_step` stands
        above the one in it. `is_stopping`: whether somebody had asked the run to end.
        `unwatched_since` says why nothing is resumed, where the program would wonder."""
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
        """None, whatever checkpoints there are; a training that begins anew by that is warned."""
        why, self._unwatched_since = self._unwatched_since, ""
        if why:
            log.warning(
                "resume: %s, so that nothing is resumed and the training begins anew, unless it "
                "loads a state by itself; checkpoints stay where they are",
                why,
            )
        return None

    def state_dict(self) -> dict[str, object]:
        """With what was loaded: a later life that watches goes on with it."""
        return {**self._state, "run_id": self.run_id, "next_step": self._next_step}

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        self._state = dict(state_dict)
        next_step = state_dict.get("next_step")
        self._next_step = next_step if isinstance(next_step, int) else 0

    def finish(self, status: Status = "finished", *, reason: str = "") -> None:
        pass
