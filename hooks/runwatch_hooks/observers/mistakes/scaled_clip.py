"""Detects a clip of gradients that still contain the loss scale: it limits a norm that is thousands
of times too large."""

from collections.abc import Sequence

from runwatch_hooks.step.observer import Clip, OptimizerStep, StepEnd, StepNotes, StepObserver


class ScaledClip(StepObserver):
    """Follows the slots of clips, layers' indices in the layout, until they are unscaled."""

    name = "scaled clip"

    def __init__(self) -> None:
        self._clipped: dict[int, float] = {}
        """Slot -> `max_norm` of a clip that it passed while still multiplied by the loss scale."""
        self._unscaled: set[int] = set()
        self._found: float | None = None

    def on_unscale(self, slots: Sequence[int]) -> None:
        """If the program did not ask for it, this happens in `scaler.step`, after a clip that was
        therefore applied to scaled gradients."""
        if self._clipped:
            limits = [self._clipped[slot] for slot in slots if slot in self._clipped]
            self._found = max(limits, default=self._found)
        self._unscaled.update(slots)

    def on_clip(self, clip: Clip) -> None:
        if clip.has_scaler and self._unscaled.isdisjoint(clip.slots):
            self._clipped |= dict.fromkeys(clip.slots, clip.max_norm)

    def on_gradients(self, step: OptimizerStep) -> None:
        if getattr(step.optimizer, "grad_scale", None) is not None:  # a fused one unscales itself
            self.on_unscale(step.slots)

    def end_step(self, end: StepEnd) -> StepNotes | None:
        found, self._found = self._found, None
        self._clipped = {}
        self._unscaled.clear()
        return None if found is None else StepNotes({"scaled_clip": found})
