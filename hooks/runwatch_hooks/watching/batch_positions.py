"""Iterates over a loader so that a rollback goes back in the data too, and skips bad batches."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

_Batch = TypeVar("_Batch")

MAX_STEPS: Final = 100_000
"""Steps whose batches are remembered. A rollback goes back a few hundred."""


class BatchPositions:
    """The batches that each step was trained on, as places in the order of the loader.

    A place is the number of batches that the loader has given before."""

    def __init__(self) -> None:
        self.num_rollbacks = 0
        self._place = 0
        """Place of the next batch."""
        self._ends: OrderedDict[int, int] = OrderedDict()
        """Step -> place of the first batch after it."""
        self._discarded: set[int] = set()

    def over(
        self, loader: Iterable[_Batch], begin: Callable[[], None] = lambda: None
    ) -> Iterator[_Batch]:
        """The batches of a loader whose position a rollback sets; after one, iteration starts again
        from there. `begin` is called when the iterator has been made and no batch taken yet."""
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
                    goes_on = True  # the loader's position was set, which this iterator ignores
                    break

    def over_any(self, loader: Iterable[_Batch], tell: Callable[[str], None]) -> Iterator[_Batch]:
        """The batches of a loader whose position cannot be set. After a rollback, `tell` gets a
        message that the next batches follow."""
        num_rollbacks = self.num_rollbacks
        for batch in loader:
            yield batch
            if self.num_rollbacks != num_rollbacks:
                num_rollbacks = self.num_rollbacks
                tell(
                    f"a {type(loader).__name__} that attach was not given, or that has no "
                    "state_dict, cannot be positioned: the run continues with its next batches"
                )

    def end_step(self, step: int) -> None:
        if not self._ends:
            if not self._place:  # the program does not use `Watch.batches`
                return
            self._ends[step - 1] = 0
        self._ends[step] = self._place
        if len(self._ends) > MAX_STEPS:
            self._ends.popitem(last=False)

    def go_back(self, next_step: int, fault_step: int | None) -> int:
        """The loader was positioned before `next_step` again. Returns how many batches will be
        skipped: those of `fault_step`, if it is known."""
        self.num_rollbacks += 1
        start = self._ends.get(next_step - 1)
        if start is None:  # further back than is remembered: count places from here
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
