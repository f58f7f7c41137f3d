"""The guard: a step by gradients that are not finite changes nothing."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from tests.hooks.measure.recorder import RecordingLine
from tests.hooks.measure.tiny import TEAM, TinyGpt, batch, tiny_gpt
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from runwatch_hooks.building import build_watch
from runwatch_hooks.errors import AttachError
from runwatch_hooks.guard import check_guardable
from runwatch_hooks.live import LiveWatch
from runwatch_hooks.objects import Objects
from runwatch_hooks.options import Options

Parameters = Iterable[nn.Parameter]
Make = Callable[[Parameters], Optimizer]

KINDS: dict[str, Make] = {
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
    def __init__(self, make: Make = KINDS["adamw, foreach"], *, guard: bool = True) -> None:
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

    def step(self, bad: float | None = None) -> None:
        loss = self.gradients(bad)
        self.optimizer.step()
        self.watch.step(loss)

    def state(self) -> list[Tensor]:
        return [one.clone() for one in [*self.model.parameters(), *states_of(self.optimizer)]]


def watch_over(
    model: nn.Module, *optimizers: Optimizer, line: RecordingLine, guard: bool = True
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_bad_step_changes_no_weight_no_moment_and_no_count(kind: str, bad: float) -> None:
    training = Training(KINDS[kind])
    training.step()
    training.step()
    before = training.state()
    training.step(bad)
    between = training.state()
    training.step()

    assert are_same(before, between)
    assert not are_same(before, training.state())
    assert all(bool(one.isfinite().all()) for one in training.state())
    assert training.line.metric("guarded_steps") == [0.0, 0.0, 1.0, 0.0]
    assert training.line.kinds().count("guarded") == 1
    assert training.watch.num_faults == 0
    training.watch.finish()


def test_a_bad_first_step_leaves_no_state_behind() -> None:
    training = Training()
    before = training.state()
    training.step(torch.nan)

    assert are_same(before, training.state())  # no moment was born
    training.watch.finish()


def test_the_gradients_are_seen_and_are_there_again_after_the_step() -> None:
    training = Training()
    loss = training.gradients(torch.nan)
    weight = training.model.blocks[1].get_parameter("out.weight")
    grad = weight.grad
    training.optimizer.step()
    training.watch.step(loss)

    assert weight.grad is grad
    assert training.line.metric("nonfinite") == [1.0]
    training.watch.finish()


def test_without_a_bad_step_the_training_is_the_same_to_the_bit() -> None:
    states: list[list[Tensor]] = []
    for guard in (False, True):
        training = Training(KINDS["adamw, fused"], guard=guard)
        torch.manual_seed(1)
        for _ in range(4):
            training.step()
        states.append(training.state())
        training.watch.finish()

    assert are_same(*states)


def test_what_a_clip_made_of_a_bad_gradient_is_kept_out_too() -> None:
    training = Training()
    training.step()
    before = training.state()
    loss = training.gradients(torch.inf)
    clip_grad_norm_(training.model.parameters(), 1.0)
    training.optimizer.step()
    training.watch.step(loss)

    assert are_same(before, training.state())
    training.watch.finish()


def test_each_of_several_optimizers_decides_for_itself() -> None:
    line = RecordingLine()
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    one = SGD(model[0].parameters(), lr=0.1)
    other = AdamW(model[1].parameters(), lr=0.1, fused=True)
    watch = watch_over(model, one, other, line=line)
    loss: Tensor = model(torch.ones(2, 3)).sum()
    torch.autograd.backward(loss)
    before = copy.deepcopy(model.state_dict())
    spoil(model[1].get_parameter("weight"))
    one.step()
    other.step()
    watch.step(1.0)
    after = model.state_dict()

    assert not torch.equal(before["0.weight"], after["0.weight"])
    assert torch.equal(before["1.weight"], after["1.weight"])
    assert line.metric("guarded_steps") == [1.0]
    watch.finish()


@pytest.mark.parametrize("fused", [False, True])
def test_a_gradient_scaler_skips_by_itself_and_the_guard_keeps_out_of_it(fused: bool) -> None:
    line = RecordingLine()
    model = nn.Linear(3, 1)
    optimizer = AdamW(model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    watch = watch_over(model, optimizer, line=line)
    for is_bad in (False, True, False):
        before = copy.deepcopy(model.state_dict())
        optimizer.zero_grad()
        loss: Tensor = model(torch.ones(2, 3)).sum()
        torch.autograd.backward(scaler.scale(loss))
        if is_bad:
            spoil(model.weight, torch.inf)
        scaler.step(optimizer)
        scaler.update()
        watch.step(1.0)
        assert torch.equal(before["weight"], model.weight) is is_bad

    assert line.metric("skipped") == [0.0, 1.0, 0.0]
    assert line.metric("guarded_steps") == [0.0, 0.0, 0.0]
    assert scaler.get_scale() == 2.0
    watch.finish()


class Twice(SGD):
    """As some libraries' optimizers do, it calls its parent's step from its own."""

    def step(self, closure: Any = None) -> Any:
        super().step()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.data.add_(parameter.grad, alpha=-1e-3)
        return None


def test_a_step_within_a_step_is_guarded_to_its_end() -> None:
    SGD([nn.Parameter(torch.ones(1))])  # torch hooks the parent's step once one was made
    training = Training(lambda parameters: Twice(parameters, lr=0.1))
    before = training.state()
    training.step(torch.nan)

    assert are_same(before, training.state())
    assert training.line.metric("guarded_steps") == [1.0]
    training.watch.finish()


class Failing(SGD):
    fails = True

    def step(self, closure: Any = None) -> Any:
        if self.fails:
            raise RuntimeError("out of memory")
        super().step()
        return None


def test_after_a_step_that_raised_the_next_is_guarded_as_well() -> None:
    SGD([nn.Parameter(torch.ones(1))])
    training = Training(lambda parameters: Failing(parameters, lr=0.1))
    with pytest.raises(RuntimeError, match="out of memory"):
        training.step(torch.nan)
    Failing.fails = False
    before = training.state()
    training.step(torch.nan)
    between = training.state()
    training.step()

    assert are_same(before, between)
    assert not are_same(before, training.state())
    training.watch.finish()


def test_a_closure_is_not_guarded_and_that_is_told() -> None:
    line = RecordingLine()
    model = nn.Linear(3, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    watch = watch_over(model, optimizer, line=line)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(torch.ones(2, 3)).square().sum()
        torch.autograd.backward(loss)
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    watch.step(1.0)
    told = [event.detail["what"] for event in line.events if event.kind == "unwatched"]

    assert told == ["a step that evaluates a closure (LBFGS) is not guarded"]
    watch.finish()


def test_other_peoples_optimizers_are_left_alone_and_torch_is_as_it_was_afterwards() -> None:
    training = Training()
    foreign = nn.Parameter(torch.ones(2))
    theirs = SGD([foreign], lr=0.1)
    foreign.grad = torch.full((2,), torch.nan)
    theirs.step()
    training.watch.finish()
    training.step(torch.nan)

    assert bool(foreign.isnan().all())
    assert not all(bool(one.isfinite().all()) for one in training.state())


def test_an_optimizer_that_does_not_ask_the_device_is_refused_on_one() -> None:
    parameter = nn.Parameter(torch.ones(2, device="meta"))

    with pytest.raises(AttachError, match="found SGD on meta, wanted one that asks the device"):
        check_guardable([SGD([parameter], lr=0.1)])
