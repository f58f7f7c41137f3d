"""The detectors of mistakes that are not observers by themselves yet."""

from torch.optim import Optimizer

from runwatch_hooks.faults import Faults
from runwatch_hooks.seeing.kept_gradients import KeptGradients


class Omissions:
    """All detectors, fed with the events of each step."""

    def __init__(self, faults: Faults) -> None:
        self._kept = KeptGradients(faults)

    def close(self) -> None:
        """Remove all hooks from the parameters."""
        self._kept.close()

    def after_step(self, optimizer: Optimizer) -> None:
        self._kept.after_step(optimizer)

    def note_gradients(self, optimizer: Optimizer) -> None:
        """The gradients of an optimizer's step are complete: at its beginning or, if a closure
        computes them, at its end."""
        self._kept.before_step(optimizer)

    def end_row(self) -> dict[str, float]:
        """Metrics of what is omitted."""
        found = {
            "kept_gradients": self._kept.end_row(),
        }
        return {name: value for name, value in found.items() if value is not None}
