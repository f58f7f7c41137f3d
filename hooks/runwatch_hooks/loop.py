"""What a training loop has to do itself: obey a command, and go back in its data."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Final, Literal, TypeVar

from runwatch_hooks.watch import StepReport

# The hook counts a command as applied when it has
# done its own part: it reports `stop`, or it has restored the state. Only the loop can leave, or
# go back in its own counter. One that never asks trains on silently, so it is reported.

PATIENCE_STEPS: Final = 20
"""Steps in which the loop must ask, as some loops ask only every few steps."""

Part = Literal["stop", "rolled_back_to", "lr_scale"]
"""What the loop has to react to, by the attribute of StepReport that says so."""

_PARTS: Final = frozenset[Part](("stop", "rolled_back_to", "lr_scale"))

NOTICES: Final[Mapping[Part, str]] = {
    "stop": (
        "the run was asked to stop, but its program trains on: a loop must end when "
        "`watch.step(...).stop` is true, or iterate over `watch.steps(n)`"
    ),
    "rolled_back_to": (
        "the run was rolled back, but the loop of its program was not: its counter and batches go "
        "on, unless it iterates over `watch.steps(n)` and `watch.batches(loader)`, or reads "
        "`watch.step(...).rolled_back_to`"
    ),
}
"""Notices for a run that `attach` watches. None for `lr_scale`, which the hook applies itself."""


class LoopCompliance:
    """The reactions expected of the program. Each one missing is reported once."""

    def __init__(self, notices: Mapping[Part, str] = NOTICES) -> None:
        self._notices = notices
        self._num_steps_left: dict[Part, int] = {}
        self._told: set[Part] = set()

    def expect(self, part: Part) -> None:
        """Expect the program to read this part within `PATIENCE_STEPS`, from the next step on."""
        if part not in self._told:
            self._num_steps_left[part] = PATIENCE_STEPS

    def note(self, part: Part) -> None:
        """The program has read this part, so it can react."""
        self._num_steps_left.pop(part, None)

    def end_step(self) -> list[str]:
        """A step has ended; returns messages about reactions that are overdue."""
        if not self._num_steps_left:
            return []
        left: dict[Part, int] = {part: number - 1 for part, number in self._num_steps_left.items()}
        overdue: list[Part] = [part for part, number in left.items() if number <= 0]
        self._told.update(overdue)
        self._num_steps_left = {part: number for part, number in left.items() if number > 0}
        return [self._notices[part] for part in overdue]

    def observed(self, report: StepReport) -> StepReport:
        """The report; while a reaction is expected, a copy that notes which attributes are read."""
        return _ObservedReport.of(report, self) if self._num_steps_left else report


class _ObservedReport(StepReport):
    _compliance: LoopCompliance | None = None
    """None in a copy."""

    @classmethod
    def of(cls, report: StepReport, compliance: LoopCompliance) -> "_ObservedReport":
        observed = cls(**{one.name: getattr(report, one.name) for one in fields(report)})
        object.__setattr__(observed, "_compliance", compliance)  # the dataclass is frozen
        return observed

    def __getattribute__(self, name: str) -> object:
        if name in _PARTS and (compliance := self._compliance) is not None:
            compliance.note(name)
        return super().__getattribute__(name)


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
