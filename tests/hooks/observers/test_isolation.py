"""A fault of one observer in a real training, and that no observer waits for a device."""

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.step.loops import train
from tests.hooks.step.remote import remote
from tests.hooks.tiny import TEAM, watched
from torch import nn
from torch.optim import SGD, Adam, Optimizer

from runwatch_hooks.faults import Faults
from runwatch_hooks.observers import OBSERVERS, observers_of
from runwatch_hooks.observers.mistakes import zero_grad
from runwatch_hooks.observers.mistakes.eval_mode import EvalMode
from runwatch_hooks.observers.mistakes.untrained import Untrained
from runwatch_hooks.observers.mistakes.zero_grad import SAME_FOR
from runwatch_hooks.statistics.readback import Readback
from runwatch_hooks.step.layers import KnownOptimizer
from runwatch_hooks.step.observer import (
    Clip,
    Observers,
    OptimizerStep,
    RunContext,
    StepEnd,
    StepObserver,
)

STEPS = 8
FAILS_AT = 3


class FailsLate:
    """Fails at one step, whatever it is called with."""

    def __init__(self) -> None:
        self.num_calls = 0

    def __call__(self, *_: object) -> None:
        self.num_calls += 1
        if self.num_calls == FAILS_AT:
            raise RuntimeError("a detector's fault")


@pytest.mark.parametrize(
    ("kind", "event"),
    [(Untrained, "on_gradients"), (EvalMode, "before_optimizer"), (Untrained, "end_step")],
)
def test_a_detector_that_fails_costs_the_rows_nothing(
    monkeypatch: pytest.MonkeyPatch, line: RecordingLine, kind: type[StepObserver], event: str
) -> None:
    fails = FailsLate()

    def called(_: StepObserver, argument: object) -> None:
        fails(argument)

    monkeypatch.setattr(kind, event, called)
    model = nn.Linear(2, 1)
    optimizer = SGD(model.parameters(), 0.1)
    watch = watched(model, optimizer, line=line)
    train(model, optimizer, watch, STEPS)
    watch.finish()

    assert line.metric("layers_with_grad") == [2.0] * STEPS
    assert line.metric("lr") == [0.1] * STEPS
    assert fails.num_calls == FAILS_AT
    assert line.kinds().count("hook_fault") == 1
    assert watch.num_faults == 1


def remote_optimizer() -> Optimizer:
    weight, bias = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(()))
    optimizer = Adam([weight, bias])
    weight.grad, bias.grad = remote([1.0, 2.0]), remote(3.0)
    optimizer.state[weight]["step"] = remote(1.0)
    return optimizer


def take_step(observers: Observers, step: int, optimizer: Optimizer) -> None:
    taken = OptimizerStep(optimizer, (0, 1), has_closure=False)
    observers.on_backward(accumulates=True)
    observers.on_clip(Clip((0, 1), 1.0, has_scaler=True))
    observers.on_unscale((0, 1))
    observers.before_optimizer(taken)
    observers.on_gradients(taken)
    observers.after_optimizer(taken)
    end = StepEnd(
        step=step,
        segment=0,
        now=float(step),
        saw_gradients=True,
        named=(),
        is_sharded=False,
        optimizers=(KnownOptimizer(optimizer),),
    )
    observers.end_step(end)


def test_no_observer_converts_what_lies_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_ring(num_values: int, device: torch.device, depth: int) -> Readback:
        return Readback(num_values, torch.device("cpu"), depth)

    monkeypatch.setattr(zero_grad, "Readback", open_ring)
    faults = Faults()
    run = RunContext(modules={}, schedulers=(), world=TEAM.world, faults=faults)
    observers, optimizer = observers_of(run), remote_optimizer()
    for step in range(SAME_FOR + 4):
        take_step(observers, step, optimizer)
    told = faults.untold()
    observers.detach()

    assert told == []
    assert len({kind.name for kind in OBSERVERS}) == len(OBSERVERS)
