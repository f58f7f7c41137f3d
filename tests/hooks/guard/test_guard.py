"""The guard: a step by gradients that are not finite changes nothing."""

import copy
import math
from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch
from tests.hooks.guard.guarded import (
    KINDS,
    Make,
    Parameters,
    Training,
    are_same,
    spoil,
    states_of,
    watch_over,
)
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import watched
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, AdamW, Optimizer

from runwatch.commands import Command, LowerLr
from runwatch.vocabulary import CommandId
from runwatch_hooks.errors import AttachError
from runwatch_hooks.faults import Faults
from runwatch_hooks.guard import Guard, check_guardable
from runwatch_hooks.settings.options import Options


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("by_closure", [False, True])
def test_a_bad_step_changes_no_weight_no_moment_and_no_count(
    kind: str, bad: float, by_closure: bool
) -> None:
    training = Training(KINDS[kind])
    training.step(by_closure=by_closure)
    training.step(by_closure=by_closure)
    before = training.state()
    training.step(bad, by_closure=by_closure)
    between = training.state()
    training.step(by_closure=by_closure)

    assert are_same(before, between)
    assert not are_same(before, training.state())
    assert all(bool(one.isfinite().all()) for one in training.state())
    assert training.line.metric("guarded_steps") == [0.0, 0.0, 1.0, 0.0]
    assert training.line.metric("nonfinite") == [0.0, 0.0, 1.0, 0.0]
    assert training.line.metric("layers_with_grad") == [13.0] * 4
    assert training.line.kinds().count("guarded") == 1
    assert training.watch.num_faults == 0
    training.watch.finish()


def test_a_bad_first_step_leaves_no_state_behind() -> None:
    training = Training()
    before = training.state()
    training.step(torch.nan)

    assert are_same(before, training.state())  # no moment was born
    training.watch.finish()


@pytest.fixture
def filled_memory() -> Iterator[None]:
    """New memory holds NaN, and not by chance what somebody left there."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("filled_memory")
def test_momentum_that_a_bad_first_step_brought_into_being_is_zero() -> None:
    training = Training(KINDS["sgd, fused"])
    training.step(torch.nan)
    momenta = states_of(training.optimizer)
    training.step()

    assert momenta
    assert all(bool(one.isfinite().all()) for one in training.state())
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


def test_the_flag_of_a_step_that_raised_does_not_take_that_of_a_gradient_scaler_with_it() -> None:
    training = Training(KINDS["sgd, fused"])
    training.step()
    group, scaler = training.optimizer.param_groups[0], torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(()))  # makes its scale
    training.gradients()
    lr = group.pop("lr")
    with pytest.raises(KeyError):
        training.optimizer.step()
    group["lr"] = lr
    before = training.state()
    training.gradients(torch.nan)
    scaler.step(training.optimizer)
    scaler.update()

    assert are_same(before, training.state())
    assert training.watch.num_faults == 0
    training.watch.finish()


def test_two_runs_that_guard_one_optimizer_leave_no_flag_on_it() -> None:
    training = Training(KINDS["sgd, fused"])
    other = watch_over(training.model, training.optimizer, line=RecordingLine(), guard="outliers")
    training.step()
    before = training.state()
    training.step(torch.nan)
    between = training.state()
    training.step()

    assert are_same(before, between)
    assert not are_same(before, training.state())
    assert not hasattr(training.optimizer, "found_inf")
    other.finish()
    training.watch.finish()


def test_a_closure_that_raises_is_as_if_nobody_had_looked() -> None:
    training = Training()

    def failing() -> Tensor:
        training.gradients(torch.nan)
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        cast(Any, training.optimizer).step(failing)
    before = training.state()
    training.step(torch.nan, by_closure=True)

    assert are_same(before, training.state())
    assert training.line.metric("guarded_steps") == [1.0]
    training.watch.finish()


class MovesFirst(SGD):
    """As those that minimize sharpness do, it looks at the loss from where the gradients point."""

    def step(self, closure: Any = None) -> Any:
        parameters: list[Tensor] = [one for group in self.param_groups for one in group["params"]]
        moved = [(one, one.grad) for one in parameters if one.grad is not None]
        with torch.no_grad():
            for one, move in moved:
                one.add_(move)
        loss = closure()
        with torch.no_grad():
            for one, move in moved:
                one.sub_(move)
        super().step()
        return loss


def moves_first(parameters: Parameters) -> Optimizer:
    return MovesFirst(parameters, lr=0.1)


def lbfgs(parameters: Parameters) -> Optimizer:
    return torch.optim.LBFGS(parameters, max_iter=2)


@pytest.mark.parametrize("make", [lbfgs, moves_first])
def test_what_may_move_before_its_closure_is_not_guarded_and_that_is_told(make: Make) -> None:
    states: list[list[Tensor]] = []
    told: list[object] = []
    for guard in (False, True):
        training = Training(make, guard=guard)
        training.step(by_closure=True)
        training.step(torch.nan, by_closure=True)
        states.append([one.nan_to_num(0.5) for one in training.state()])
        events = training.line.events
        told += [event.detail["what"] for event in events if event.kind == "unwatched"]
        training.watch.finish()
    name = type(training.optimizer).__name__

    assert are_same(*states)
    assert told == [
        f"not guarded: {name} may move its parameters before its closure has run for the last time"
    ]


class Forced(Optimizer):
    """Somebody else's: it puts zeros where there is no gradient, and counts its steps by itself."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, {"lr": 1e-2, "momentum": 0.9, "num_steps": 0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["num_steps"] += 1
            for one in group["params"]:
                grad = one.grad = torch.zeros_like(one) if one.grad is None else one.grad
                momentum = self.state[one].setdefault("momentum", torch.zeros_like(one))
                one.sub_(momentum.mul_(group["momentum"]).add_(grad), alpha=group["lr"])


@pytest.mark.parametrize("num_before", [0, 2])
def test_what_an_optimizer_of_somebody_elses_did_by_a_bad_step_is_undone(num_before: int) -> None:
    training = Training(Forced)
    for _ in range(num_before):
        training.step()
    before = training.state()
    loss = training.gradients(torch.nan)
    weight = training.model.blocks[1].get_parameter("out.weight")
    grad = weight.grad
    training.optimizer.step()
    training.watch.step(loss)

    assert are_same(before, training.state())
    assert len(before) == len(training.state())
    assert training.optimizer.param_groups[0]["num_steps"] == num_before
    assert weight.grad is grad
    training.step()
    assert not are_same(before, training.state())
    assert training.line.metric("guarded_steps") == [*[0.0] * num_before, 1.0, 0.0]
    assert training.watch.num_faults == 0
    training.watch.finish()


def break_off(optimizer: Optimizer) -> None:
    """A step of torch's own that raises in its midst, by gradients that are not finite."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.full_like(parameter, torch.nan)
    momentum = optimizer.param_groups[0].pop("momentum")
    with pytest.raises(KeyError):
        optimizer.step()
    optimizer.param_groups[0]["momentum"] = momentum


def test_the_gradients_of_a_bad_step_that_raised_do_not_come_back_at_the_next_one() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    optimizer = SGD(model.parameters(), lr=0.1)
    watch = watch_over(model, optimizer, line=RecordingLine())
    break_off(optimizer)
    optimizer.zero_grad()
    model[0].get_parameter("weight").grad = torch.ones(3, 3)  # the other layer has none this time
    before = copy.deepcopy(model.state_dict())
    optimizer.step()
    watch.step(1.0)

    assert not torch.equal(before["0.weight"], model[0].get_parameter("weight"))
    assert model[1].get_parameter("weight").grad is None
    watch.finish()


def test_the_gradients_of_a_bad_step_that_raised_do_not_come_back_at_the_runs_end() -> None:
    training = Training(KINDS["sgd, momentum, decay"])
    break_off(training.optimizer)
    training.watch.finish()

    assert all(one.grad is None for one in training.model.parameters())


def test_what_a_bad_step_that_raised_was_told_is_not_taken_for_a_scalers_word() -> None:
    training = Training(KINDS["adamw, fused"])
    training.gradients(torch.nan)
    betas = training.optimizer.param_groups[0].pop("betas")
    with pytest.raises(KeyError):
        training.optimizer.step()
    training.optimizer.param_groups[0]["betas"] = betas
    training.step()

    assert training.line.metric("guarded_steps") == [1.0]  # the one that raised
    assert training.line.metric("skipped") == []
    training.watch.finish()


def norms(optimizer: Optimizer, *_: object) -> None:
    """A hook of a program's, which takes it that there are gradients."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad.norm()


@pytest.mark.parametrize("comes_first", [False, True])
@pytest.mark.parametrize("place", ["register_step_pre_hook", "register_step_post_hook"])
def test_the_programs_own_hooks_of_an_optimizer_see_the_gradients_of_a_bad_step(
    place: str, comes_first: bool
) -> None:
    line = RecordingLine()
    model = nn.Linear(3, 1)
    optimizer = SGD(model.parameters(), lr=0.1)
    if comes_first:
        getattr(optimizer, place)(norms)
    watch = watch_over(model, optimizer, line=line)
    if not comes_first:
        getattr(optimizer, place)(norms)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, torch.nan)
    optimizer.step()
    watch.step(1.0)

    assert all(bool(one.isfinite().all()) for one in model.parameters())
    assert line.metric("guarded_steps") == [1.0]
    watch.finish()


def test_a_step_whose_gradients_a_hook_of_the_programs_mends_is_taken() -> None:
    line = RecordingLine()
    model = nn.Linear(3, 1)
    optimizer = SGD(model.parameters(), lr=0.1)

    def mend(*_: object) -> None:
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.nan_to_num_(1.0)

    watch = watch_over(model, optimizer, line=line)
    optimizer.register_step_pre_hook(mend)
    before = model.weight.detach().clone()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, torch.nan)
    optimizer.step()
    watch.step(1.0)

    assert torch.equal(model.weight, before - 0.1)
    assert line.metric("guarded_steps") == [0.0]
    assert line.metric("nonfinite") == [4.0]
    watch.finish()


@pytest.mark.parametrize("kind", [float, torch.tensor])
def test_a_lowered_rate_is_the_schedules_again_after_a_bad_step(kind: Any) -> None:
    line = RecordingLine()
    model = nn.Linear(3, 1)
    optimizer = Forced(model.parameters())
    optimizer.param_groups[0]["lr"] = kind(0.25)
    lower = LowerLr(scale=0.5)
    line.commands = [Command(id=CommandId("c1"), action=lower, attempt=1, expires_at=math.inf)]
    watch = watched(model, optimizer, line=line, options=Options(guard=True, allow=("lower_lr",)))
    for bad in (1.0, torch.nan, torch.nan, 1.0):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, bad)
        optimizer.step()
        watch.step(1.0)
        assert float(optimizer.param_groups[0]["lr"]) == 0.25

    assert line.metric("lr") == [0.25, 0.125, 0.125, 0.125]
    assert line.metric("guarded_steps") == [0.0, 1.0, 1.0, 0.0]
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


def test_one_that_asks_the_device_no_more_is_left_alone_and_that_is_told() -> None:
    model = nn.Linear(3, 1, device="meta")  # whose flags nobody can ask for
    optimizer = AdamW(model.parameters(), lr=0.1)
    saved = optimizer.state_dict()
    optimizer.param_groups[0]["fused"] = True
    cast(Any, optimizer)._step_supports_amp_scaling = True
    faults = Faults()
    guard = Guard({"": model}, [optimizer], faults)
    guard.install()
    optimizer.load_state_dict(saved)  # of a run that was not fused
    for parameter in model.parameters():
        parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    guard.remove()

    assert guard.take_notices() == [
        "not guarded: found AdamW on meta, wanted one that asks the device: fused=True"
    ]
    assert guard.take() == {"guarded_steps": 0.0}
    assert faults.count == 0
