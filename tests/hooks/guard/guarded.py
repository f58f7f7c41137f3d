"""A training under the guard, for the tests of what it stops."""

from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import TEAM, TinyGpt, batch, tiny_gpt
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from runwatch_hooks.attaching.wiring import Objects, build_watch
from runwatch_hooks.run import LiveWatch
from runwatch_hooks.settings.options import Guarding, Options

Parameters = Iterable[nn.Parameter]
Make = Callable[[Parameters], Optimizer]

KINDS: Final[dict[str, Make]] = {
    "adamw, foreach": lambda parameters: AdamW(parameters, lr=1e-2, foreach=True),
    "adamw, plain": lambda parameters: AdamW(parameters, lr=1e-2, foreach=False),
    "adamw, fused": lambda parameters: AdamW(parameters, lr=1e-2, fused=True),
    "adam, fused, amsgrad": lambda p: Adam(p, lr=1e-2, fused=True, amsgrad=True),
    "sgd, momentum, decay": lambda p: SGD(p, lr=1e-2, momentum=0.9, weight_decay=0.1),
    "sgd, fused": lambda parameters: SGD(parameters, lr=1e-2, momentum=0.9, fused=True),
    "adagrad, fused": lambda parameters: Adagrad(parameters, lr=1e-2, fused=True),
    "rmsprop": lambda parameters: RMSprop(parameters, lr=1e-2, momentum=0.5),
}


class Training:
    def __init__(self, make: Make = KINDS["adamw, foreach"], *, guard: Guarding = True) -> None:
        self.line = RecordingLine()
        self.model: TinyGpt = tiny_gpt()
        self.optimizer = make(self.model.parameters())
        self.watch = watch_over(self.model, self.optimizer, line=self.line, guard=guard)

    def gradients(self, bad: float | None = None) -> Tensor:
        self.optimizer.zero_grad()
        loss: Tensor = self.model(*batch())
        torch.autograd.backward(loss)
        if bad is not None:
            spoil(self.model.blocks[1].get_parameter("out.weight"), bad)
        return loss

    def step(self, bad: float | None = None, *, by_closure: bool = False) -> None:
        if by_closure:
            loss = cast(Any, self.optimizer).step(lambda: self.gradients(bad))
        else:
            loss = self.gradients(bad)
            self.optimizer.step()
        self.watch.step(loss)

    def state(self) -> list[Tensor]:
        return [one.clone() for one in [*self.model.parameters(), *states_of(self.optimizer)]]


def watch_over(
    model: nn.Module, *optimizers: Optimizer, line: RecordingLine, guard: Guarding = True
) -> LiveWatch:
    objects = Objects(modules={"": model}, optimizers=optimizers)
    return build_watch(objects, Options(guard=guard), line.open, TEAM)


def spoil(parameter: Tensor, bad: float = torch.nan) -> None:
    assert parameter.grad is not None
    parameter.grad.view(-1)[0] = bad


def states_of(optimizer: Optimizer) -> list[Tensor]:
    states: Any = optimizer.state
    return [one for state in states.values() for one in state.values() if isinstance(one, Tensor)]


def are_same(before: list[Tensor], after: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
