"""What an optimizer steps with is the schedule's rate times the scale, at every step."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves parts of its own interface without types)

import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from runwatch_hooks.state import LrScale
from runwatch_hooks.state.outcomes import LrScaleError

SCHEDULERS: dict[str, Callable[[Optimizer], LRScheduler]] = {
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 20),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "one_cycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.5, total_steps=20),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o), lr_scheduler.CosineAnnealingLR(o, 20)], [5]
    ),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=2, factor=0.3),
}


class Recorder(SGD):
    """Writes down the rate that it really steps with."""

    def __init__(self, rate: float | Tensor) -> None:
        super().__init__([nn.Parameter(torch.ones(2))], lr=rate)
        self.applied: list[float] = []

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        self.applied.append(float(self.param_groups[0]["lr"]))


class Refusing(Recorder):
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        super().step()
        raise RuntimeError("out of memory")


@pytest.fixture
def lr_scale() -> Iterator[LrScale]:
    lr_scale = LrScale()
    lr_scale.install()
    yield lr_scale
    lr_scale.close()


def rates(name: str, rate: float | Tensor, scales: list[float]) -> tuple[list[float], list[float]]:
    """Per step: the rate applied, and the one that stood in the group before and after it."""
    optimizer = Recorder(rate)
    lr_scale = LrScale([optimizer])
    lr_scale.install()
    scheduler = SCHEDULERS[name](optimizer)
    scheduled: list[float] = []
    for scale in scales:
        lr_scale.set(scale)
        before = float(optimizer.param_groups[0]["lr"])
        optimizer.step()
        assert float(optimizer.param_groups[0]["lr"]) == before
        scheduled.append(before)
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            scheduler.step(1.0)
        else:
            scheduler.step()
    lr_scale.close()
    return optimizer.applied, scheduled


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_schedule_does_not_notice_the_scale(name: str) -> None:
    _, plain = rates(name, 0.5, [1.0] * 16)

    applied, scheduled = rates(name, 0.5, [1.0] * 4 + [0.5] * 8 + [0.25] * 4)

    assert scheduled == plain
    assert applied[:4] == plain[:4]
    assert applied[4:12] == [rate * 0.5 for rate in plain[4:12]]
    assert applied[12:] == [rate * 0.25 for rate in plain[12:]]


@pytest.mark.parametrize("name", [name for name in SCHEDULERS if name != "plateau"])
@pytest.mark.parametrize("place", ["register_step_pre_hook", "register_step_post_hook"])
@pytest.mark.parametrize("kind", [float, torch.tensor])
def test_a_schedule_that_a_hook_of_the_optimizers_steps_does_not_notice_it_either(
    name: str, place: str, kind: Callable[[float], float | Tensor]
) -> None:
    def applied(scale: float) -> list[float]:
        optimizer = Recorder(kind(0.5))
        lr_scale = LrScale([optimizer])
        lr_scale.install()
        lr_scale.set(scale)
        scheduler = SCHEDULERS[name](optimizer)

        def hook(*_: object) -> None:
            scheduler.step()

        getattr(optimizer, place)(hook)
        for _ in range(8):
            optimizer.step()
        lr_scale.close()
        return optimizer.applied

    assert applied(0.5) == [rate * 0.5 for rate in applied(1.0)]


@pytest.mark.parametrize("name", [name for name in SCHEDULERS if name != "plateau"])
def test_a_rate_that_is_a_tensor_is_scaled_in_place(name: str) -> None:
    _, plain = rates(name, torch.tensor(0.5), [1.0] * 16)

    applied, scheduled = rates(name, torch.tensor(0.5), [0.5] * 16)

    assert scheduled == plain
    assert applied == [rate * 0.5 for rate in plain]


def test_a_third_is_put_back_without_drift() -> None:
    rate = torch.tensor(0.1)
    optimizer = Recorder(rate)
    lr_scale = LrScale([optimizer])
    lr_scale.install()
    lr_scale.set(1 / 3)

    for _ in range(50):
        optimizer.step()

    lr_scale.close()
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == torch.tensor(0.1).item()


def test_a_rate_of_numpys_is_scaled_like_any_number() -> None:
    rate = cast(float, np.float32(0.5))
    optimizer = Recorder(rate)
    lr_scale = LrScale([optimizer])
    lr_scale.install()
    lr_scale.set(0.5)
    optimizer.step()
    lr_scale.close()

    assert optimizer.applied == [0.25]
    assert optimizer.param_groups[0]["lr"] is rate


def test_groups_that_share_one_tensor_are_scaled_once(lr_scale: LrScale) -> None:
    groups = [{"params": [nn.Parameter(torch.ones(1))]}, {"params": [nn.Parameter(torch.ones(1))]}]
    optimizer = torch.optim.AdamW(groups, lr=torch.tensor(0.5), weight_decay=0.0)
    lr_scale = LrScale([optimizer])
    lr_scale.install()
    lr_scale.set(0.5)
    for group in optimizer.param_groups:
        group["params"][0].grad = torch.ones(1)

    optimizer.step()

    lr_scale.close()
    assert groups[0]["params"][0].item() == pytest.approx(0.75)  # Adam's first step is one rate
    assert optimizer.param_groups[1]["lr"].item() == 0.5


def test_after_a_step_that_raised_the_rate_is_exact_again() -> None:
    optimizer = Refusing(0.1)
    lr_scale = LrScale([optimizer])
    lr_scale.install()
    lr_scale.set(0.5)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            optimizer.step()

    lr_scale.settle()

    lr_scale.close()
    assert optimizer.applied == [0.05, 0.05, 0.05]
    assert optimizer.param_groups[0]["lr"] == 0.1


class Interrupting(dict[str, Any]):
    """A parameter group at which Ctrl-C strikes, right after a rate was written."""

    is_armed = False

    def __setitem__(self, key: str, value: object) -> None:
        super().__setitem__(key, value)
        if self.is_armed:
            self.is_armed = False
            raise KeyboardInterrupt


@pytest.mark.parametrize("strikes_before_the_step", [True, False])
def test_an_interrupt_while_rates_are_exchanged_leaves_none_scaled(
    strikes_before_the_step: bool,
) -> None:
    class Arming(SGD):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            first.is_armed = not strikes_before_the_step

    optimizer = Arming([{"params": [nn.Parameter(torch.ones(2))]} for _ in range(2)], lr=0.5)
    first = Interrupting(optimizer.param_groups[0])
    first.is_armed = strikes_before_the_step
    optimizer.param_groups[0] = first
    scale = LrScale([optimizer])
    scale.install()
    scale.set(0.5)
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()

    scale.close()

    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.5]


@pytest.mark.parametrize("rate", [0.1, torch.tensor(0.1)])
def test_a_schedule_that_moved_after_a_step_that_raised_has_the_last_word(
    rate: float | Tensor,
) -> None:
    optimizer = Refusing(rate)
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    lr_scale = LrScale([optimizer])
    lr_scale.install()
    lr_scale.set(0.5)
    with pytest.raises(RuntimeError):
        optimizer.step()
    scheduler.step()

    lr_scale.close()

    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.05)


@pytest.mark.parametrize("kind", [float, torch.tensor])
def test_a_state_that_is_saved_after_a_step_that_raised_holds_the_schedules_rate(
    kind: Callable[[float], float | Tensor],
) -> None:
    optimizer = Refusing(kind(0.5))
    lr_scale = LrScale([optimizer])
    lr_scale.install()
    lr_scale.set(0.25)
    with pytest.raises(RuntimeError):
        optimizer.step()

    saved = float(optimizer.state_dict()["param_groups"][0]["lr"])

    lr_scale.close()
    assert optimizer.applied == [0.125]
    assert saved == 0.5
    assert not saved_hooks(optimizer)


@pytest.mark.parametrize("kind", [float, torch.tensor])
def test_a_state_that_is_saved_within_a_step_holds_the_schedules_rate(
    kind: Callable[[float], float | Tensor],
) -> None:
    """As a signal's handler does it."""
    saved: list[float] = []

    class Saving(Recorder):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            settle()
            saved.append(float(self.state_dict()["param_groups"][0]["lr"]))
            super().step()

    optimizer = Saving(kind(0.5))
    lr_scale = LrScale([optimizer])
    settle = lr_scale.settle
    lr_scale.install()
    lr_scale.set(0.25)
    optimizer.step()

    lr_scale.close()
    assert saved == [0.5]
    assert optimizer.applied == [0.125]


def saved_hooks(optimizer: Any) -> list[object]:
    return list(optimizer._optimizer_state_dict_post_hooks.values())


class Whole(Recorder):
    """Is copied and saved with its hooks, which torch's own leave out."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()


def test_an_optimizer_that_is_copied_with_its_hooks_takes_none_of_ours_along() -> None:
    optimizer = Whole(0.5)
    lr_scale = LrScale([optimizer])
    lr_scale.install()
    lr_scale.set(0.25)
    optimizer.step()
    twin: Whole = pickle.loads(pickle.dumps(optimizer))
    twin.step()

    lr_scale.close()
    assert twin.applied == [0.125, 0.5]
    assert twin.state_dict()["param_groups"][0]["lr"] == 0.5


class Decaying(Recorder):
    """Lowers its rate itself, at each step."""

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        super().step()
        self.param_groups[0]["lr"] *= 0.9


class Warming(Recorder):
    """Has a schedule in it, which writes down the rate of the next step."""

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        super().step()
        lr: float | Tensor = self.param_groups[0]["lr"]
        following = 0.1 * 0.9 ** len(self.applied)
        self.param_groups[0]["lr"] = lr.fill_(following) if isinstance(lr, Tensor) else following


@pytest.mark.parametrize("make", [Decaying, Warming])
@pytest.mark.parametrize("kind", [float, torch.tensor])
def test_a_rate_that_an_optimizer_changes_itself_is_lowered_once(
    make: type[Recorder], kind: Callable[[float], float | Tensor]
) -> None:
    optimizer = make(kind(0.1))
    lr_scale = LrScale([optimizer])
    lr_scale.install()
    lr_scale.set(0.25)

    for _ in range(3):
        optimizer.step()

    lr_scale.close()
    assert optimizer.applied == pytest.approx([0.025, 0.0225, 0.02025])
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.0729)


@pytest.mark.parametrize("kind", [float, torch.tensor])
def test_a_rate_that_an_optimizer_sets_to_nought_itself_stays(
    kind: Callable[[float], float | Tensor],
) -> None:
    class Ending(Recorder):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            super().step()
            self.param_groups[0]["lr"] *= 0.0

    optimizer = Ending(kind(0.1))
    lr_scale = LrScale([optimizer])
    lr_scale.install()
    lr_scale.set(0.5)

    optimizer.step()

    lr_scale.close()
    assert float(optimizer.param_groups[0]["lr"]) == 0.0


def test_a_child_by_fork_trains_by_its_own_rate() -> None:
    optimizer = Recorder(0.5)
    lr_scale = LrScale([optimizer])
    lr_scale.install()
    lr_scale.set(0.25)
    child = os.fork()
    if not child:
        optimizer.step()
        os._exit(0 if optimizer.applied == [0.5] else 1)
    _, status = os.waitpid(child, 0)

    lr_scale.close()
    assert status == 0


def test_an_optimizer_that_hands_its_step_on_to_another_is_scaled_once() -> None:
    class Wrapper(Optimizer):
        def __init__(self, wrapped: Optimizer) -> None:
            super().__init__(wrapped.param_groups, {})
            self.wrapped = wrapped
            self.param_groups = wrapped.param_groups

        def step(self, closure: object = None) -> None:  # type: ignore[override]
            self.wrapped.step()

    optimizer = Recorder(0.5)
    lr_scale = LrScale([wrapper := Wrapper(optimizer), optimizer])
    lr_scale.install()
    lr_scale.set(0.25)
    wrapper.step()
    optimizer.step()

    lr_scale.close()
    assert optimizer.applied == [0.125, 0.125]
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_the_rate_stays_scaled_to_the_end_of_a_step_that_calls_its_parents() -> None:
    class Child(Recorder):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            super().step()
            self.applied.append(float(self.param_groups[0]["lr"]))

    optimizer = Child(0.1)
    lr_scale = LrScale([optimizer])
    lr_scale.install()
    lr_scale.set(0.5)

    optimizer.step()

    lr_scale.close()
    assert optimizer.applied == [0.05, 0.05]
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_every_closure_of_an_lbfgs_step_sees_the_scaled_rate() -> None:
    weight = nn.Parameter(torch.tensor([4.0]))
    optimizer = torch.optim.LBFGS([weight], lr=0.5, max_iter=4)
    lr_scale = LrScale([optimizer])
    lr_scale.install()
    lr_scale.set(0.5)
    seen: list[float] = []

    def closure() -> Tensor:
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]

    lr_scale.close()
    assert len(seen) > 1
    assert set(seen) == {0.25}
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_an_optimizer_made_later_over_the_same_module_is_scaled() -> None:
    module = nn.Linear(1, 1, bias=False)
    nn.init.ones_(module.weight)
    lr_scale = LrScale([], {"model": module})
    lr_scale.install()
    lr_scale.set(0.5)
    optimizer = SGD(module.parameters(), lr=1.0)
    module.weight.grad = torch.ones(1, 1)

    optimizer.step()

    lr_scale.close()
    assert module.weight.item() == 0.5


def test_an_optimizer_of_somebody_else_is_left_alone(lr_scale: LrScale) -> None:
    lr_scale.set(0.5)
    optimizer = Recorder(0.1)

    optimizer.step()

    assert optimizer.applied == [0.1]


def test_torchs_own_adafactor_is_scaled_whose_clip_has_a_threshold_of_that_name() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adafactor([weight], lr=0.5)
    lr_scale = LrScale([optimizer])

    lr_scale.set(0.5)

    assert "d" in optimizer.param_groups[0]
    assert lr_scale.scale == 0.5


@pytest.mark.parametrize("option", [{"weight_sum": 0.0}, {"d": 1e-6}, {"lr": None}])
def test_an_optimizer_that_averages_by_its_rate_is_refused(option: dict[str, object]) -> None:
    optimizer = Recorder(0.1)
    optimizer.param_groups[0].update(option)
    lr_scale = LrScale([optimizer])
    lr_scale.install()

    with pytest.raises(LrScaleError, match="Recorder, group 0"):
        lr_scale.set(0.5)

    lr_scale.close()
    assert lr_scale.scale == 1.0


def test_an_optimizer_of_which_the_rate_is_the_first_step_alone_is_refused() -> None:
    optimizer = torch.optim.Rprop([nn.Parameter(torch.ones(2))], lr=0.01)
    lr_scale = LrScale([optimizer])

    with pytest.raises(LrScaleError, match="Rprop: its learning rate is the size of its first"):
        lr_scale.set(0.5)
