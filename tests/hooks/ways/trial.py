"""A training script run twice, bare and watched, and what it says its gradients were."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from tests.hooks.recorder import RecordingLine, stat
from tests.hooks.tiny import TEAM
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from runwatch.vocabulary import RunId
from runwatch_hooks.attaching.wiring import Objects, build_watch, modules_of, optimizers_of
from runwatch_hooks.settings.options import Options
from runwatch_hooks.step.row import Row
from runwatch_hooks.watch import InertWatch, Watch

Norms = dict[str, float]


class Trial:
    """One run of a script."""

    def __init__(self, *, is_watched: bool) -> None:
        self.is_watched = is_watched
        self.line = RecordingLine()
        self.losses: list[str] = []
        """To the bit."""
        self.norms: list[Norms] = []
        """Of each step, by layer, in float64; what is not named has no gradient."""
        self._watch: Watch = InertWatch(RunId("0" * 26))

    def attach(
        self,
        model: nn.Module | Mapping[str, nn.Module],
        optimizer: Optimizer | Sequence[Optimizer],
        scaler: torch.amp.GradScaler | None = None,
    ) -> Watch:
        if self.is_watched:
            objects = Objects(
                modules=modules_of(model),
                optimizers=optimizers_of(optimizer),
                scalers=[] if scaler is None else [scaler],
            )
            self._watch = build_watch(objects, Options(), self.line.open, TEAM)
        return self._watch

    def step(self, loss: Tensor | float, norms: Norms) -> None:
        self.losses.append(float(loss.detach() if isinstance(loss, Tensor) else loss).hex())
        self.norms.append(norms)
        self._watch.step(loss)

    def finish(self) -> None:
        self._watch.finish()

    @property
    def rows(self) -> list[Row]:
        return [row for row in self.line.rows if "loss" in row.metrics]

    @property
    def told_norms(self) -> list[Norms]:
        return [norms_told(row) for row in self.rows]


def norms_told(row: Row) -> Norms:
    if row.layout is None:
        return {}
    told = zip(row.layout.layer_names, stat(row, "grad_norm").tolist(), strict=True)
    return {name: norm for name, norm in told if not math.isnan(norm)}


def norms_of(model: nn.Module, prefix: str = "", scale: float = 1.0) -> Norms:
    """What the gradients' norms are, by the plainest arithmetic."""
    return {
        prefix + name: _norm(parameter.grad) / scale
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def _norm(grad: Tensor) -> float:
    dense = grad.detach().to_dense()
    wide = dense.to(torch.complex128 if dense.is_complex() else torch.float64)
    return float(wide.abs().square().sum().sqrt())


def both(script: Callable[[Trial], None]) -> tuple[Trial, Trial]:
    """The script, bare and then watched."""
    trials = Trial(is_watched=False), Trial(is_watched=True)
    for trial in trials:
        torch.manual_seed(7)
        script(trial)
        trial.finish()
    return trials


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Dropout(0.1), nn.Linear(12, 3))


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(8, 6), torch.randint(3, (8,))


def loss_of(model: nn.Module) -> Tensor:
    x, y = batch()
    return F.cross_entropy(model(x), y)


def backward(loss: Tensor) -> Tensor:
    torch.autograd.backward(loss)
    return loss
