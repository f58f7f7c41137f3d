"""Whether the program does its part of a stop and of a rollback, which its loop alone can do.

A command counts as applied once the hook has done what it can: the report says `stop`, the state
stands where it went back to. A loop that counts by itself goes on all the same, without a word.
"""

from dataclasses import fields
from typing import Final, Literal

from runwatch_hooks.watch import StepReport

PATIENCE_STEPS: Final = 20
"""A loop may ask every few steps only."""

Part = Literal["stop", "rolled_back_to"]
"""By the name of what a report says of it."""

_NOTICES: Final[dict[Part, str]] = {
    "stop": (
        "the run was asked to stop, and its program trains on: a loop ends where "
        "`watch.step(...).stop` is true, or goes over `watch.steps(n)`"
    ),
    "rolled_back_to": (
        "the run went back, and the loop of its program did not: its counter and its batches go "
        "on, unless it goes over `watch.steps(n)` and `watch.batches(loader)`, or asks for "
        "`watch.step(...).rolled_back_to`"
    ),
}


class Heed:
    """What is expected of the program, until it asks or has been told of, once for each."""

    def __init__(self) -> None:
        self._num_steps_left: dict[Part, int] = {}
        self._told: set[Part] = set()

    def expect(self, part: Part) -> None:
        """From the next step on."""
        if part not in self._told:
            self._num_steps_left[part] = PATIENCE_STEPS

    def note(self, part: Part) -> None:
        """The program has asked."""
        self._num_steps_left.pop(part, None)

    def end_step(self) -> list[str]:
        """What there is to tell of those that nobody has asked for."""
        if not self._num_steps_left:
            return []
        left: dict[Part, int] = {part: number - 1 for part, number in self._num_steps_left.items()}
        overdue: list[Part] = [part for part, number in left.items() if number <= 0]
        self._told.update(overdue)
        self._num_steps_left = {part: number for part, number in left.items() if number > 0}
        return [_NOTICES[part] for part in overdue]

    def heard(self, report: StepReport) -> StepReport:
        """One that notes what the program reads of it, where something is expected."""
        return _HeardReport.of(report, self) if self._num_steps_left else report


class _HeardReport(StepReport):
    _heed: Heed | None = None
    """None in a copy."""

    @classmethod
    def of(cls, report: StepReport, heed: Heed) -> "_HeardReport":
        heard = cls(**{one.name: getattr(report, one.name) for one in fields(report)})
        object.__setattr__(heard, "_heed", heed)  # it is frozen for everybody else
        return heard

    def __getattribute__(self, name: str) -> object:
        if name in _NOTICES and (heed := self._heed) is not None:
            heed.note(name)
        return super().__getattribute__(name)
