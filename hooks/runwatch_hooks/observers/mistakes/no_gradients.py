"""Detects that no gradients are seen any more, and counts the layers that have none on purpose."""

from collections.abc import Sequence
from typing import Final

from runwatch_hooks.statistics.layer_names import NamedTensor
from runwatch_hooks.step.observer import StepEnd, StepNotes, StepObserver

BLIND_AFTER: Final = 100
"""Boundaries without a gradient before it is reported. A loop that calls `watch.step` for each
micro-batch has none at most boundaries."""
_LOOKED_EVERY: Final = 8
"""Rows between two counts of frozen layers; counting 500 takes tens of microseconds. The rule
LayersWithoutGradient waits longer than that."""

_LOST: Final = (
    f"no gradient was seen for {BLIND_AFTER} steps: if another model or another optimizer is "
    "trained by now, attach that one"
)
_NEVER_HAD: Final = (
    f"no gradient has been seen in the first {BLIND_AFTER} steps: attach the model that is trained "
    "and the optimizer whose step() trains it; a loop without an optimizer of torch can give its "
    "gradients to runwatch_hooks.plain.open_run"
)


class NoGradients(StepObserver):
    """Counts boundaries since gradients were last seen, and the layers that do not require one any
    more."""

    name = "missing gradients"

    def __init__(self) -> None:
        self._num_blind = 0
        self._has_seen = False
        self._num_rows = 0
        self._num_frozen = 0
        self._has_told = False

    def end_step(self, end: StepEnd) -> StepNotes | None:
        """The number of such layers once there were any, and a notice once each time that gradients
        are no longer seen."""
        sees = end.saw_gradients
        self._num_blind = 0 if sees else self._num_blind + 1
        self._has_seen = self._has_seen or sees
        if self._num_rows % _LOOKED_EVERY == 0:
            self._count(end.named)
        self._num_rows += 1
        is_lost = self._num_blind == BLIND_AFTER
        if not (is_lost or self._has_told):
            return None
        numbers = {"frozen_layers": float(self._num_frozen)} if self._has_told else {}
        notice = _LOST if self._has_seen else _NEVER_HAD
        return StepNotes(numbers, notices=(notice,) if is_lost else ())

    def _count(self, named: Sequence[NamedTensor]) -> None:
        self._num_frozen = sum(not one.tensor.requires_grad for one in named)
        self._has_told = self._has_told or self._num_frozen > 0
