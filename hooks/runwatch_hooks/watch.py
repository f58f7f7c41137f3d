"""The watch that a training program holds: the public interface of the hook."""

from abc import abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar, Union

from runwatch.vocabulary import RunId
from runwatch_hooks.exit_causes import EndsWithItsBlock, Status
from runwatch_hooks.own_log import OwnLog

if TYPE_CHECKING:
    from torch import Tensor

_Batch = TypeVar("_Batch")

Loggable: TypeAlias = Union[float, "Tensor"]
"""A number, or a tensor, of which the mean is recorded if it has several elements. A tensor on an
accelerator is read without a sync: its value arrives some steps later."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """What happened at the boundary after a step."""

    step: int
    """The step that has just ended."""
    rolled_back_to: int | None = None
    """The step to train next, if the training state was rolled back at this boundary."""
    lr_scale: float = 1.0
    """The multiplier on the learning rate, in force from the next step on."""
    stop: bool = False
    """A stop was requested: leave the training loop."""
    checkpoint_asked: bool = False
    """A checkpoint was requested and the hook is writing its own: a good time to save yours."""


class Watch(EndsWithItsBlock):
    """Watches one training run, and carries out commands that `allow` permits.

        with attach(model, optimizer, run="small-gpt") as watch:
            for step in watch.steps(1000):
                loss = train_one(step)              # forward, backward, clip, optimizer.step
                watch.step(loss, tokens=4096)

    No method raises into the training loop, except `resume` and `load_state_dict`: continuing from
    a state that was only partly restored would be worse than an error.
    """

    run_id: RunId
    _num_boundaries: int
    """How often `step` was called."""

    @property
    @abstractmethod
    def next_step(self) -> int:
        """The number of the step to train next, counted from 0."""

    @property
    @abstractmethod
    def is_stopping(self) -> bool:
        """Whether a stop was requested."""

    @abstractmethod
    def step(
        self,
        loss: Loggable | None = None,
        *,
        tokens: int | None = None,
        **metrics: Loggable,
    ) -> StepReport:
        """The boundary: call it once per step, after `optimizer.step()` and `scheduler.step()`.

        Records the step's row and carries out pending commands. `tokens` is the number of tokens
        trained on in this step. If one of `metrics` has a name that the hook records itself (`lr`,
        `grad_norm`, `step_time`, ...), yours is stored with a prefix, as `user/lr`.
        """

    @abstractmethod
    def log(self, **metrics: Loggable) -> None:
        """Record numbers in the row of the step that ended last, such as `val_loss`. Once the next
        forward pass in training mode has begun, they belong to the step under way, as they do
        before the first step. A number that is logged again replaces the former one, unless that
        was not finite."""

    @abstractmethod
    def note_batch(self, batch: object) -> None:
        """Keep a reference to the next step's batch, for its diagnostic bundle. The batch is not
        copied. Loops over `batches` need not call this."""

    @abstractmethod
    def phase(self, name: str) -> AbstractContextManager[None]:
        """A period in which no step is expected and step time does not count. `name` is `eval`,
        `checkpoint` or `compile`; any other is recorded as `idle`."""

    @abstractmethod
    def resume(self) -> int | None:
        """Load the newest checkpoint in `checkpoints=` into the watched objects; call it before the
        first step.

        Returns the number of the step to train next, or None if there is no checkpoint. With
        several ranks, all of them must call it: they continue from the newest checkpoint that every
        rank can load. Raises ActionError if a checkpoint does not fit the objects.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, object]:
        """The watch's own state, for your checkpoints: next step, LR scale, commands applied."""

    @abstractmethod
    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        """Continue from a saved `state_dict`. Raises InvalidInputError if it is not one."""

    @abstractmethod
    def finish(self, status: Status = "finished", *, reason: str = "") -> None:
        """End the run, send what is still queued (waiting 10 s at most), and remove all hooks
        and patches from torch. `reason` says why, and is shown with the run."""

    def steps(self, stop: int) -> Iterator[int]:
        """The numbers of the steps to train, up to but not including `stop`. After a rollback it
        continues from the step that the state went back to.

        Ends early if a stop was requested. If an iteration of the loop did not call `step`, it is
        called here, without a loss.
        """
        while self.next_step < stop and not self.is_stopping:
            boundaries = self._num_boundaries
            yield self.next_step
            if self._num_boundaries == boundaries:
                self.step()

    def batches(self, loader: Iterable[_Batch]) -> Iterator[_Batch]:
        """A loader's batches. A rollback moves the loader back too, if its position can be set.

            loader = StatefulDataLoader(dataset, batch_size=8, shuffle=True)
            watch = attach(model, optimizer, run="small-gpt", dataloader=loader, ...)
            for batch in watch.batches(loader):
                watch.step(train_one(batch))

        For that, it must be the `dataloader` given to `attach` and have a `state_dict`. After a
        rollback, iteration continues with the batches of the step to train next, without those of
        the step at which the trouble began. Any other loader continues with its next batch. A
        rollback to a step of an earlier epoch continues in that epoch, and the iteration ends with
        it.
        """
        yield from loader


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
