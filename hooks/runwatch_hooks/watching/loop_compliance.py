"""Notices a training loop that ignores a command.

The hook counts a command as applied when it has done its own part: it reports `stop`, or it has
restored the state. Only the loop can leave, or go back in its own counter. One that never asks
trains on silently, so it is reported.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Final, Literal

from runwatch_hooks.watch import StepReport

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
