"""One training loop for every program, with the places where a fault can reach in."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from runwatch_hooks.state.loop_state import HasState
from runwatch_hooks.watch import StepReport, Watch

Batch = tuple[Tensor, ...]
Kept = dict[str, dict[str, Any]]
"""What a checkpoint holds: the state of the program's parts, by their names."""


@dataclass(slots=True, kw_only=True)
class Program:
    """A model, how it is trained, and on what. A fault may change any of it."""

    model: nn.Module
    optimizer: Optimizer
    batch_at: Callable[[int], Batch]
    """The batch of a step, a function of the step and the seed alone."""
    loss_of: Callable[[nn.Module, Batch], Tensor]
    scheduler: LRScheduler | None = None
    clip: float | None = None
    scaler: torch.amp.GradScaler | None = None
    micro_batches: int = 1
    divide_by_micro_batches: bool = True
    evaluate_every: int = 0
    evaluate: Callable[[nn.Module], float] | None = None
    others: Sequence[tuple[nn.Module, Optimizer]] = ()
    """Further models with optimizers of their own, trained by `alternate` before each step."""
    alternate: Callable[[int], None] | None = None
    zeroes_gradients: bool = True
    unscales_gradients: bool = True
    """Before they are clipped, where there is a scaler."""
    steps_optimizer: bool = True
    resumes_at: int = 0
    """The step that a second process begins with, from what the first has kept; 0: there is one."""
    logged_loss: Callable[[Tensor], Tensor] = field(default=lambda loss: loss)

    @property
    def models(self) -> nn.Module | dict[str, nn.Module]:
        """As the hook takes them: one, or several by name."""
        if not self.others:
            return self.model
        others = {f"other_{number}": model for number, (model, _) in enumerate(self.others)}
        return {"main": self.model} | others

    def parameters(self, prefix: str = "") -> list[nn.Parameter]:
        """Those of the layers whose names begin so."""
        named = self.model.named_parameters()
        found = [parameter for name, parameter in named if name.startswith(prefix)]
        assert found, f"the model has no layer {prefix!r}"
        return found


def keep(program: Program) -> Kept:
    """The checkpoint that a program's process leaves behind."""
    return deepcopy({name: part.state_dict() for name, part in _parts(program).items()})


def restore(program: Program, kept: Kept) -> None:
    """Go on from a checkpoint, as many programs do: what it does not hold stays as it was made."""
    program.model.load_state_dict(kept.pop("model", {}), strict=False)
    for name, state in kept.items():
        _parts(program)[name].load_state_dict(state)


def _parts(program: Program) -> dict[str, HasState]:
    assert program.scaler is None, "a program that resumes would have to keep its scaler"
    parts: dict[str, HasState] = {"model": program.model, "optimizer": program.optimizer}
    return parts if program.scheduler is None else parts | {"scheduler": program.scheduler}


class Fault:
    """Does nothing; a fault overrides the place where it strikes.

    `step` counts from the fault's own step: 0 is the first step that is ill.
    """

    def begin(self, program: Program) -> None:
        """Before training; for what is wrong from the start."""

    def before(self, program: Program, step: int) -> None:
        """Between two steps."""

    def batch(self, batch: Batch, step: int) -> Batch:
        return batch

    def loss(self, loss: Tensor, step: int) -> Tensor:
        return loss

    def gradients(self, program: Program, step: int) -> None:
        """After backward, before clipping and the optimizer."""

    def resume(self, kept: Kept) -> None:
        """Between two processes: what the second finds is what this leaves."""


HEALTHY: Final = Fault()


Told = Callable[[float, StepReport], None]
"""Hears of each step its loss, and what the hook said at its boundary."""


def tell_nobody(loss: float, report: StepReport) -> None:
    """For a training of which nothing but its rows is wanted."""


def train(
    program: Program,
    watch: Watch,
    steps: int,
    fault: Fault,
    fault_step: int,
    tell: Told = tell_nobody,
) -> None:
    """Train so many steps under the hook, with a fault from `fault_step` on."""
    for step in watch.steps(steps):
        if step >= fault_step:
            fault.before(program, step - fault_step)
        if program.alternate is not None:
            program.alternate(step)
        loss = _backward(program, step, fault, fault_step)
        if step >= fault_step:
            fault.gradients(program, step - fault_step)
        _update(program)
        report = watch.step(program.logged_loss(loss), tokens=len(program.batch_at(step)[0]))
        tell(loss.item(), report)
        _evaluate(program, watch, step)


def _backward(program: Program, step: int, fault: Fault, fault_step: int) -> Tensor:
    """The gradients of a step's micro-batches; their mean loss."""
    if program.zeroes_gradients:
        program.optimizer.zero_grad()
    total = torch.zeros(())
    for micro in range(program.micro_batches):
        batch = program.batch_at(step * program.micro_batches + micro)
        if step >= fault_step:
            batch = fault.batch(batch, step - fault_step)
        loss = program.loss_of(program.model, batch)
        if step >= fault_step:
            loss = fault.loss(loss, step - fault_step)
        total = total + loss.detach() / program.micro_batches
        if program.divide_by_micro_batches:
            loss = loss / program.micro_batches
        if program.scaler is not None:
            loss = program.scaler.scale(loss)
        if loss.requires_grad:
            torch.autograd.backward(loss)
    return total


def _update(program: Program) -> None:
    if program.scaler is not None and program.unscales_gradients:
        program.scaler.unscale_(program.optimizer)
    if program.clip is not None:
        nn.utils.clip_grad_norm_(program.model.parameters(), program.clip)
    if program.steps_optimizer:
        if program.scaler is not None:
            program.scaler.step(program.optimizer)
            program.scaler.update()
        else:
            program.optimizer.step()
    if program.scheduler is not None:
        program.scheduler.step()


def _evaluate(program: Program, watch: Watch, step: int) -> None:
    if program.evaluate is None or (step + 1) % program.evaluate_every:
        return
    program.model.eval()
    with torch.no_grad(), watch.phase("eval"):
        watch.log(val_loss=program.evaluate(program.model))
    program.model.train()
