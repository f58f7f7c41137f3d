"""The watch that a training program holds: the public interface of the hook."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar, Union

from runwatch.vocabulary import RunId
from runwatch_hooks.lifecycle.run_end import EndsWithItsBlock, Status

if TYPE_CHECKING:  # programs without torch use StepReport as well
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
