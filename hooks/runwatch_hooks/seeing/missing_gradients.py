"""Notices, and reports, that no gradients are seen any more."""

from typing import Final

BLIND_AFTER: Final = 100
"""Boundaries without a gradient before it is reported. A loop that calls `watch.step` for each
micro-batch has none at most boundaries."""

_LOST: Final = (
    f"no gradient was seen for {BLIND_AFTER} steps: if another model or another optimizer is "
    "trained by now, attach that one"
)
_NEVER_HAD: Final = (
    f"no gradient has been seen in the first {BLIND_AFTER} steps: attach the model that is trained "
    "and the optimizer whose step() trains it; a loop without an optimizer of torch can give its "
    "gradients to runwatch_hooks.plain.open_run"
)


class MissingGradients:
    """Counts boundaries since gradients were last seen."""

    def __init__(self) -> None:
        self._num_blind = 0
        self._has_seen = False

    def look(self, sees: bool) -> list[str]:
        """Messages to report, once each time that gradients are no longer seen."""
        self._num_blind = 0 if sees else self._num_blind + 1
        self._has_seen = self._has_seen or sees
        if self._num_blind != BLIND_AFTER:
            return []
        return [_LOST if self._has_seen else _NEVER_HAD]
