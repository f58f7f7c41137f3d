"""A small training on whatever devices, beside what plain arithmetic says of it."""

import math
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

import pytest
import torch
from tests.hooks.recorder import RecordingLine, of_layer
from tests.hooks.tiny import watched
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW, Optimizer

from runwatch_hooks.run import LiveWatch
from runwatch_hooks.settings.options import Options
from runwatch_hooks.step.row import Row

CUDA: Final[Any] = torch.cuda  # torch leaves these functions without types
BATCHES, ROWS, WIDTH = 8, 6, 16


class Halves(nn.Module):
    """Two layers, each of which may lie on a device of its own."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, 2 * WIDTH).to(first)
        self.second = nn.Linear(2 * WIDTH, WIDTH).to(second)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))
        hidden = hidden.to(self.second.weight.device)
        return cast(Tensor, self.second(hidden)).square().mean()


Make = Callable[[Any], Optimizer]


def adamw(parameters: Any) -> Optimizer:
    return AdamW(parameters, lr=1e-2)


def fused(parameters: Any) -> Optimizer:
    return AdamW(parameters, lr=1e-2, fused=True)


class Trial:
    """A model, its batches, and what plain arithmetic says of each step: kept where it lies until
    the training is over."""

    def __init__(
        self, line: RecordingLine | None, *devices: str, make: Make = adamw, options: Options
    ) -> None:
        torch.manual_seed(0)
        self.model = Halves(*devices) if len(devices) == 2 else Halves(*devices * 2)
        self.device = self.model.first.weight.device
        self.batches = torch.randn(BATCHES, ROWS, WIDTH).to(self.device)
        self.optimizer = make(self.model.parameters())
        self.scaler: torch.amp.GradScaler | None = None
        self.expected: list[dict[str, dict[str, Tensor]]] = []
        self.losses: list[Tensor] = []
        self.watch: LiveWatch | None = None
        self._line, self._options = line, options

    def attach(self) -> LiveWatch:
        assert self._line is not None
        scalers = () if self.scaler is None else (self.scaler,)
        self.watch = watched(
            self.model, self.optimizer, line=self._line, options=self._options, scalers=scalers
        )
        return self.watch

    def step(self, index: int, bad: float | None = None, max_norm: float | None = None) -> None:
        self.optimizer.zero_grad()
        loss: Tensor = self.model(self.batches[index % BATCHES])
        scaler = self.scaler
        torch.autograd.backward(loss if scaler is None else scaler.scale(loss))
        if bad is not None:
            gradient_of(self.model.second.weight).view(-1)[3].fill_(bad)
        divisor = 1.0 if scaler is None else scaler.scale(torch.ones((), device=loss.device))
        before = {name: one.detach().clone() for name, one in self.model.named_parameters()}
        plain = {
            name: plainly(gradient_of(one).detach() / _on(divisor, one), before[name])
            for name, one in self.model.named_parameters()
        }
        if max_norm is not None:
            clip_grad_norm_(self.model.parameters(), max_norm)
        if scaler is None:
            self.optimizer.step()
        else:
            scaler.step(self.optimizer)
            scaler.update()
        for name, one in self.model.named_parameters():
            plain[name]["moved"] = (one.detach() - before[name]).norm()
        self.expected.append(plain)
        self.losses.append(loss.detach().clone())
        if self.watch is not None:
            self.watch.step(loss)

    def parameters(self) -> list[Tensor]:
        return [one.detach().clone() for one in self.model.parameters()]


def gradient_of(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def _on(divisor: Tensor | float, other: Tensor) -> Tensor | float:
    return divisor.to(other.device) if isinstance(divisor, Tensor) else divisor


def plainly(gradient: Tensor, parameter: Tensor) -> dict[str, Tensor]:
    """What is told of a layer, by the first operations that come to mind."""
    return {
        "grad_norm": gradient.norm(),
        "grad_absmax": gradient.abs().max(),
        "nonfinite": (~gradient.isfinite()).sum(),
        "zero_frac": (gradient == 0.0).float().mean(),
        "param_norm": parameter.norm(),
    }


def settle(*devices: str) -> None:
    """Until all that is queued is done."""
    for device in devices:
        if device != "cpu":
            CUDA.synchronize(device)


@contextmanager
def no_waiting(device: torch.device) -> Generator[None]:
    """While torch raises at what would make the host wait for an accelerator."""
    if device.type != "cuda":
        yield
        return
    before = CUDA.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it does not see everything
        CUDA.set_sync_debug_mode("error")
    try:
        yield
    finally:
        CUDA.set_sync_debug_mode(before)


def check_rows(trial: Trial, line: RecordingLine, *, but: int | None = None) -> None:
    """Every stat of every layer that was recorded, at every step but one."""
    rows = [row for row in line.rows if "loss" in row.metrics]
    assert [row.step for row in rows] == list(range(len(trial.expected)))
    norms: dict[str, float] = {}
    for step, (row, plain) in enumerate(zip(rows, trial.expected, strict=True)):
        assert row.metrics["loss"] == pytest.approx(float(trial.losses[step]), rel=1e-5)
        if step == but:
            note_norms(row, plain, norms)
        else:
            check_layers(row, plain, norms)


def note_norms(row: Row, layers: Iterable[str], norms: dict[str, float]) -> None:
    """The newest that were told: a parameter's is read at every eighth step."""
    told = {layer: of_layer(row, "param_norm", layer) for layer in layers}
    norms |= {layer: norm for layer, norm in told.items() if not math.isnan(norm)}


def check_layers(
    row: Row, plain: Mapping[str, Mapping[str, Tensor]], norms: dict[str, float]
) -> None:
    """Each stat, and the run's norm; `norms` are those of `note_norms`."""
    note_norms(row, plain, norms)
    for layer, stats in plain.items():
        told = of_layer(row, "param_norm", layer)
        expected = {name: float(one) for name, one in stats.items()}
        expected["update_ratio"] = expected.pop("moved") / norms[layer]
        expected["param_norm"] = told if math.isnan(told) else expected["param_norm"]
        found = {name: of_layer(row, name, layer) for name in expected}
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-9, nan_ok=True), layer
    total = math.sqrt(sum(float(stats["grad_norm"]) ** 2 for stats in plain.values()))
    assert row.metrics["grad_norm"] == pytest.approx(total, rel=1e-4)
