"""The detectors of mistakes that are not observers by themselves yet."""

from collections.abc import Sequence

from torch.optim import Optimizer

from runwatch_hooks.faults import Faults
from runwatch_hooks.seeing.kept_gradients import KeptGradients


class Omissions:
    """All detectors, fed with the events of each step. Slots are layers' indices in the layout."""

    def __init__(self, faults: Faults) -> None:
        self._kept = KeptGradients(faults)
        self._clipped: dict[int, float] = {}
        """Slot -> `max_norm` of a clip that it passed while still multiplied by the loss scale."""
        self._unscaled: set[int] = set()
        self._scaled_clip: float | None = None

    def close(self) -> None:
        """Remove all hooks from the parameters."""
        self._kept.close()

    def after_step(self, optimizer: Optimizer) -> None:
        self._kept.after_step(optimizer)

    def note_gradients(self, optimizer: Optimizer, slots: Sequence[int]) -> None:
        """The gradients of an optimizer's step are complete: at its beginning or, if a closure
        computes them, at its end."""
        self._kept.before_step(optimizer)
        if getattr(optimizer, "grad_scale", None) is not None:  # a fused one unscales itself
            self.note_unscaled(slots)

    def note_unscaled(self, slots: Sequence[int]) -> None:
        """The scaler has unscaled these gradients. If the program did not ask for it, this happens
        in `scaler.step`, after a clip that was therefore applied to scaled gradients."""
        if self._clipped:
            limits = [self._clipped[slot] for slot in slots if slot in self._clipped]
            self._scaled_clip = max(limits, default=self._scaled_clip)
        self._unscaled.update(slots)

    def note_clip(self, slots: Sequence[int], max_norm: float) -> None:
        """These gradients are about to be clipped, in a run with a gradient scaler."""
        if self._unscaled.isdisjoint(slots):
            self._clipped |= dict.fromkeys(slots, max_norm)

    def end_row(self) -> dict[str, float]:
        """Metrics of what is omitted."""
        found = {
            "kept_gradients": self._kept.end_row(),
            "scaled_clip": self._scaled_clip,
        }
        numbers = {name: value for name, value in found.items() if value is not None}
        self._clipped, self._scaled_clip = {}, None
        self._unscaled.clear()
        return numbers
