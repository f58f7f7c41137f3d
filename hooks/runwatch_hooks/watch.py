"""What a training program holds: the face of the hook."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar, Union

from runwatch.vocabulary import RunId
from runwatch_hooks.lifecycle.run_end import EndsWithItsBlock, Status

if TYPE_CHECKING:  # programs without torch need a StepReport, too
    from torch import Tensor

_Batch = TypeVar("_Batch")

Loggable: TypeAlias = Union[float, "Tensor"]
"""A number, or a tensor of one; a tensor on an accelerator is not waited for."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """What happened at a boundary."""

    step: int
    """The step that has just ended."""
    rolled_back_to: int | None = None
    """The step to train next, where the training state went back; else None."""
    lr_scale: float = 1.0
    """The multiplier on the learning rate, in force from the next step on."""
    stop: bool = False
    """Leave the loop: somebody asked for it."""
    checkpoint_asked: bool = False
    """Somebody asked for a checkpoint here, and ours is being written: a time to save your own."""


class Watch(EndsWithItsBlock):
    """Watches one training run, and acts on it where it is told to and allowed.

        with attach(model, optimizer, run="small-gpt") as watch:
            for step in watch.steps(1000):
                loss = train_one(step)              # forward, backward, clip, optimizer.step
                watch.step(loss, tokens=4096)

    No method raises into the training, but for `resume` and `load_state_dict`, which are asked
    for a state that must be right or not be.
    """

    run_id: RunId
    _num_boundaries: int
    """How often `step` was called."""

    @property
    @abstractmethod
    def next_step(self) -> int:
        """The number of the step to be trained next. The first is 0."""

    @property
    @abstractmethod
    def is_stopping(self) -> bool:
        """Whether somebody has asked the run to end."""

    @abstractmethod
    def step(
        self,
        loss: Loggable | None = None,
        *,
        tokens: int | None = None,
        **metrics: Loggable,
    ) -> StepReport:
        """The boundary: call it once a step, after `optimizer.step()` and `scheduler.step()`.

        Closes the step's row and carries out what was commanded. A number of yours under a name
        that we record ourselves (`lr`, `grad_norm`, `step_time`, ...) is kept as `user/lr`.
        """

    @abstractmethod
    def log(self, **metrics: Loggable) -> None:
        """Numbers that belong to the step that ended last, such as `val_loss`."""

    @abstractmethod
    def note_batch(self, batch: object) -> None:
        """What the step that comes next is trained on, for its diagnostic bundle: where the loop
        does not go over `batches`, which does this by itself. Remembered, not copied."""

    @abstractmethod
    def phase(self, name: str) -> AbstractContextManager[None]:
        """A time in which no step is due: `eval`, `checkpoint`, `compile`; any other is `idle`."""

    @abstractmethod
    def resume(self) -> int | None:
        """Put the newest checkpoint of `checkpoints=` into the objects, before the first step.

        Returns the number of the step to train next, or None where there is no checkpoint. Of
        several ranks every one has to call it: they go on from one that all of them can load.
        Raises ActionError where there is one that does not fit the objects.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, object]:
        """For checkpoints of your own: step, LR scale, and the commands that were applied."""

    @abstractmethod
    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        """Go on from there. Raises InvalidInputError for what `state_dict` never returned."""

    @abstractmethod
    def finish(self, status: Status = "finished", *, reason: str = "") -> None:
        """End the run, send what is left (10 s at most), and leave torch as it was."""

    def steps(self, stop: int) -> Iterator[int]:
        """The numbers of the steps to train, up to `stop`; after a rollback, again.

        Ends early where a stop was asked for. A turn of the loop that did not call `step` is
        closed without a loss.
        """
        while self.next_step < stop and not self.is_stopping:
            boundaries = self._num_boundaries
            yield self.next_step
            if self._num_boundaries == boundaries:
                self.step()

    def batches(self, loader: Iterable[_Batch]) -> Iterator[_Batch]:
        """A loader's batches, followed back by a rollback where the loader can be positioned.

            loader = StatefulDataLoader(dataset, batch_size=8, shuffle=True)
            watch = attach(model, optimizer, run="small-gpt", dataloader=loader, ...)
            for batch in watch.batches(loader):
                watch.step(train_one(batch))

        It must be the `dataloader` that `attach` was given, and have a `state_dict`. After a
        rollback it goes on with the batches of the step that comes next, and leaves out those of
        the step at which the trouble began. Any other loader goes on with what follows. A
        rollback to before the beginning of this pass over the data goes on in the pass before,
        and ends with it.
        """
        yield from loader
