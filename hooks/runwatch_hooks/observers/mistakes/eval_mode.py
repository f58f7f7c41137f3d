"""Detects a training that continues in evaluation mode, because `train()` was forgotten."""

from collections.abc import Iterable
from typing import Final

from torch import nn
from torch.nn.modules.batchnorm import _NormBase  # pyright: ignore[reportPrivateUsage]
from torch.nn.modules.dropout import _DropoutNd  # pyright: ignore[reportPrivateUsage]

from runwatch_hooks.step.observer import (
    OptimizerStep,
    RunContext,
    StepEnd,
    StepNotes,
    StepObserver,
)

_BEGAN_AFTER: Final = 8
"""Rows in training mode after which evaluation mode counts as a mistake. A fine-tuning that is in
evaluation mode from the start may want to train without dropout."""


class EvalMode(StepObserver):
    """Compares the mode of the modules at each optimizer step with that at the first ones.

    This reads one attribute of each model. It counts as evaluation mode if all models are in it,
    and with them every submodule whose output depends on it. Batch norm layers that are frozen on
    purpose do not count: the model itself is then in training mode.
    """

    name = "evaluation mode"

    def __init__(self, models: Iterable[nn.Module]) -> None:
        self._models = tuple(models)
        self._num_trained = 0
        self._sensitive: tuple[nn.Module, ...] | None = None
        self._trained = False
        self._evaluated = False
        self._has_told = False

    @classmethod
    def make(cls, run: RunContext) -> StepObserver | None:
        return cls(run.modules.values()) if run.world.is_leader else None

    def before_optimizer(self, step: OptimizerStep) -> None:
        for model in self._models:
            if model.training:
                self._trained = True
                return
        self._evaluated = True

    def end_step(self, end: StepEnd) -> StepNotes | None:
        """1 if all steps of the row were in evaluation mode although the run began in training
        mode, 0 if that is over, nothing if it never happened."""
        trained, evaluated = self._trained, self._evaluated
        self._trained = self._evaluated = False
        if trained or not evaluated:
            self._num_trained += trained
            return StepNotes({"eval_mode": 0.0}) if self._has_told and trained else None
        if self._num_trained >= _BEGAN_AFTER and self._is_all_evaluating():
            self._has_told = True
            return StepNotes({"eval_mode": 1.0})
        return None

    def _is_all_evaluating(self) -> bool:
        if self._sensitive is None:
            self._sensitive = tuple(
                part for model in self._models for part in model.modules() if _is_sensitive(part)
            )
        return bool(self._sensitive) and not any(part.training for part in self._sensitive)


def _is_sensitive(part: nn.Module) -> bool:
    """Whether a submodule's output is known to depend on the mode."""
    if isinstance(part, _DropoutNd):
        return part.p > 0.0
    if isinstance(part, _NormBase):
        return part.track_running_stats
    if isinstance(part, nn.MultiheadAttention | nn.RNNBase):
        return part.dropout > 0.0
    return False
