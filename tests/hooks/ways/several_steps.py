"""Training scripts that step, clip or look at gradients more than once in a row."""

from contextlib import suppress
from typing import Any, cast

import torch
from tests.hooks.ways.scripts import Scripts
from tests.hooks.ways.trial import Trial, backward, loss_of, mlp, norms_of
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, AdamW

SCRIPTS = Scripts()
INFINITY = float("inf")


class OutOfLuck(SGD):
    """One that raises when it is told to."""

    has_luck = True

    def step(self, closure: Any = None) -> Any:
        if not self.has_luck:
            raise MemoryError
        return cast(Any, super().step(closure))


@SCRIPTS.add
def a_step_that_raises_and_another_batch(trial: Trial) -> None:
    """The batch that was too large is left out."""
    model = mlp()
    optimizer = OutOfLuck(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    for step in range(4):
        optimizer.zero_grad()
        backward(loss_of(model))
        optimizer.has_luck = step % 2 == 0
        with suppress(MemoryError):
            optimizer.step()
        optimizer.has_luck = True
        optimizer.zero_grad()
        loss = backward(3 * loss_of(model))
        norms = norms_of(model)
        optimizer.step()
        trial.step(loss, norms)


@SCRIPTS.add
def an_inner_loop_by_optimizers_of_its_own(trial: Trial) -> None:
    """Reptile: the outer step goes to where the inner ones went, and is the one that is told."""
    model = mlp()
    outer = SGD(model.parameters(), lr=0.5)
    trial.attach(model, outer)
    for _ in range(3):
        before = [one.detach().clone() for one in model.parameters()]
        inner = SGD(model.parameters(), lr=0.01)
        loss = loss_of(model)
        for _ in range(3):
            inner.zero_grad()
            loss = backward(loss_of(model))
            clip_grad_norm_(model.parameters(), 0.1)
            inner.step()
        with torch.no_grad():
            for one, old in zip(model.parameters(), before, strict=True):
                one.grad = old - one
                one.copy_(old)
        norms = norms_of(model)
        outer.step()
        trial.step(loss, norms)


@SCRIPTS.add
def the_norm_after_the_clip_is_asked_for(trial: Trial) -> None:
    """Once before the step, once after it: what was read stands."""
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.01)
    trial.attach(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        loss = backward(loss_of(model))
        norms = norms_of(model)
        clip_grad_norm_(model.parameters(), 0.01)
        clip_grad_norm_(model.parameters(), INFINITY)
        optimizer.step()
        clip_grad_norm_(model.parameters(), INFINITY)
        trial.step(loss, norms)


def several_scaled_steps(trial: Trial, *, fused: bool, broken: int) -> None:
    """Three in a row, of which one is left out for its infinities in the third row."""
    model = mlp()
    optimizer = AdamW(model.parameters(), lr=0.01, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    trial.attach(model, optimizer, scaler)
    for step in range(4):
        norms, loss = {}, torch.zeros(())
        for part in range(3):
            optimizer.zero_grad()
            loss = loss_of(model)
            backward(scaler.scale(loss))
            norms = norms_of(model, scale=scaler.get_scale())
            if step == 2 and part == broken:
                bias = model[0].bias
                assert isinstance(bias, nn.Parameter)
                assert bias.grad is not None
                bias.grad.fill_(INFINITY)
                norms["0.bias"] = 0.0  # of what is finite of it
            scaler.step(optimizer)
            scaler.update()
        trial.step(loss, norms)


@SCRIPTS.add
def the_first_of_three_scaled_steps_is_skipped(trial: Trial) -> None:
    several_scaled_steps(trial, fused=False, broken=0)


@SCRIPTS.add
def the_last_of_three_scaled_steps_is_skipped(trial: Trial) -> None:
    several_scaled_steps(trial, fused=False, broken=2)


@SCRIPTS.add
def the_first_of_three_fused_steps_is_skipped(trial: Trial) -> None:
    several_scaled_steps(trial, fused=True, broken=0)


@SCRIPTS.add
def the_last_of_three_fused_steps_is_skipped(trial: Trial) -> None:
    several_scaled_steps(trial, fused=True, broken=2)
