"""What a program leaves out that no number shows: layers, `train()`, `zero_grad`, unscaling before
a clip, or the state of an optimizer or a scheduler when it resumes."""

from collections.abc import Iterable, Mapping, Sequence

from torch import nn
from torch.optim import Optimizer

from runwatch_hooks.faults import Faults
from runwatch_hooks.measuring.layer_names import NamedTensor
from runwatch_hooks.seeing.fresh_schedules import FreshSchedules
from runwatch_hooks.seeing.fresh_state import FreshState
from runwatch_hooks.seeing.kept_gradients import KeptGradients
from runwatch_hooks.seeing.known_optimizers import KnownOptimizer
from runwatch_hooks.seeing.training_mode import TrainingMode
from runwatch_hooks.seeing.untrained import Untrained


class Omissions:
    """Looks at what each step passes anyway. Slots are layers' places in the layout."""

    def __init__(
        self, modules: Mapping[str, nn.Module], faults: Faults, schedulers: Sequence[object] = ()
    ) -> None:
        self._mode = TrainingMode(modules)
        self._untrained = Untrained(modules)
        self._kept = KeptGradients(faults)
        self._fresh = FreshState()
        self._schedules = FreshSchedules(schedulers)
        self._clipped: dict[int, float] = {}
        """Thresholds of clips of gradients that still bear the loss scale, by a slot of each."""
        self._unscaled: set[int] = set()
        self._scaled_clip: float | None = None

    def close(self) -> None:
        """Leave torch as it was."""
        self._kept.close()

    def before_step(self, optimizer: Optimizer) -> None:
        """An optimizer is about to step: its state and the schedules are as yet untouched."""
        self._mode.note_step()
        self._fresh.before_step(optimizer)
        self._schedules.before_step()

    def after_step(self, optimizer: Optimizer) -> None:
        self._fresh.after_step(optimizer)
        self._kept.after_step(optimizer)

    def note_gradients(self, optimizer: Optimizer, slots: Sequence[int]) -> None:
        """The gradients of its step are there: as it begins or, where a closure makes them in it,
        as it ends."""
        self._untrained.note_step(optimizer)
        self._kept.before_step(optimizer)
        if getattr(optimizer, "grad_scale", None) is not None:  # it is fused, and unscales itself
            self.note_unscaled(slots)

    def note_unscaled(self, slots: Sequence[int]) -> None:
        """The scaler takes the scale out by itself where the program has not: then, of gradients
        that were clipped already."""
        if self._clipped:
            limits = [self._clipped[slot] for slot in slots if slot in self._clipped]
            self._scaled_clip = max(limits, default=self._scaled_clip)
        self._unscaled.update(slots)

    def note_clip(self, slots: Sequence[int], max_norm: float) -> None:
        """They are about to be clipped, in a run that has a gradient scaler."""
        if self._unscaled.isdisjoint(slots):
            self._clipped |= dict.fromkeys(slots, max_norm)

    def end_row(
        self, step: int, named: Sequence[NamedTensor], optimizers: Iterable[KnownOptimizer]
    ) -> tuple[dict[str, float], list[str]]:
        """Numbers of what is left out, and what is news of it; `named` are the layers that lie
        here as a whole."""
        numbers, news = self._untrained.end_row(named, optimizers)
        found = {
            "eval_mode": self._mode.end_row(),
            "kept_gradients": self._kept.end_row(),
            "fresh_optimizers": self._fresh.end_row(step),
            "fresh_schedulers": self._schedules.end_row(step),
            "scaled_clip": self._scaled_clip,
        }
        numbers |= {name: value for name, value in found.items() if value is not None}
        self._clipped, self._scaled_clip = {}, None
        self._unscaled.clear()
        return numbers, news
