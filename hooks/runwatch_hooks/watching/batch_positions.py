"""The batches of a loader that a rollback positions, without those of the step that went wrong."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

_Batch = TypeVar("_Batch")

MAX_STEPS: Final = 100_000
"""Remembered; a rollback goes back some hundred."""


class BatchCourse:
    """Which batches each step was trained on, by their places in the order of the loader."""

    def __init__(self) -> None:
        self.num_rollbacks = 0
        self._place = 0
        """Of the batch that comes next."""
        self._ends: OrderedDict[int, int] = OrderedDict()
        """Of each step, the place of the first batch after it."""
        self._discarded: set[int] = set()

    def over(
        self, loader: Iterable[_Batch], begin: Callable[[], None] = lambda: None
    ) -> Iterator[_Batch]:
        """A loader's batches; after a rollback from where the loader stands then. `begin` hears
        that the loader has made its iterator, and not been asked for a batch."""
        goes_on = True
        while goes_on:
            goes_on, num_rollbacks = False, self.num_rollbacks
            batches = iter(loader)
            begin()
            for batch in batches:
                self._place += 1
                if self._place - 1 in self._discarded:
                    continue
                yield batch
                if self.num_rollbacks != num_rollbacks:
                    goes_on = True  # this iterator is where it was, the loader stands elsewhere
                    break

    def over_any(self, loader: Iterable[_Batch], tell: Callable[[str], None]) -> Iterator[_Batch]:
        """The batches of one that cannot be positioned: a rollback changes nothing of them."""
        num_rollbacks = self.num_rollbacks
        for batch in loader:
            yield batch
            if self.num_rollbacks != num_rollbacks:
                num_rollbacks = self.num_rollbacks
                tell(
                    f"a {type(loader).__name__} that attach was not given, or that has no "
                    "state_dict, cannot be positioned: the run goes on with the batches that follow"
                )

    def end_step(self, step: int) -> None:
        if not self._ends:
            if not self._place:  # the program goes over its batches without us
                return
            self._ends[step - 1] = 0
        self._ends[step] = self._place
        if len(self._ends) > MAX_STEPS:
            self._ends.popitem(last=False)

    def go_back(self, next_step: int, fault_step: int | None) -> int:
        """The loader stands before a step again. Returns how many batches it will leave out:
        those of the step that went wrong, where it is known."""
        self.num_rollbacks += 1
        start = self._ends.get(next_step - 1)
        if start is None:  # further than is remembered: the places begin anew
            self._place = 0
            self._ends.clear()
            self._discarded.clear()
            return 0
        bad = self._batches_of(fault_step)
        self._discarded.update(bad)
        self._place = start
        for step in [step for step in self._ends if step >= next_step]:
            del self._ends[step]
        return len(bad)

    def _batches_of(self, step: int | None) -> range:
        if step is None or step not in self._ends or step - 1 not in self._ends:
            return range(0)
        return range(self._ends[step - 1], self._ends[step])
