"""A rollback is exact: what follows it is, bit for bit, what followed the first time."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves parts of its own interface without types)

import math
import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from runwatch_hooks.state import TrainingState
from runwatch_hooks.state.outcomes import StateMismatchError

MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
MakeScheduler = Callable[[torch.optim.Optimizer], LRScheduler]

OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "adamw_tensor_lr": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01)),
    "adam_amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "rmsprop_centered": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.01),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3, history_size=3),
    "lbfgs_wolfe": lambda p: torch.optim.LBFGS(p, max_iter=3, line_search_fn="strong_wolfe"),
}

SCHEDULERS: dict[str, MakeScheduler] = {
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 30),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)),
    "one_cycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=60),
    "multi_step": lambda o: lr_scheduler.MultiStepLR(o, [5, 12, 16]),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o), lr_scheduler.CosineAnnealingLR(o, 30)], [11]
    ),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1),
}


class Training:
    """A small program with dropout, batch norm, tied weights, and noise from every generator."""

    def __init__(
        self,
        make_optimizer: MakeOptimizer = OPTIMIZERS["adamw_foreach"],
        make_scheduler: MakeScheduler = SCHEDULERS["lambda"],
        *,
        scaled: bool = False,
    ) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.3), nn.Tanh(), nn.Linear(12, 6)
        )
        self.optimizer = make_optimizer(list(self.model.parameters()))
        self.scheduler = make_scheduler(self.optimizer)
        self.scaler = torch.amp.GradScaler("cpu", enabled=scaled, growth_interval=4)
        self.sampler = torch.Generator().manual_seed(7)
        self.state = TrainingState(
            {"model": self.model},
            [self.optimizer],
            [self.scheduler],
            [self.scaler],
            {"sampler": self.sampler},
        )

    def train(self, num_steps: int, spike_at: int | None = None) -> list[float]:
        return [self.step(is_spike=index == spike_at) for index in range(num_steps)]

    def step(self, *, is_spike: bool = False) -> float:
        x = torch.randn(8, 6, generator=self.sampler)
        x = x * float(np.random.uniform(0.5, 1.5)) * random.uniform(0.5, 1.5)

        def closure() -> Tensor:
            self.optimizer.zero_grad()
            loss: Tensor = (self.model(x) - x).square().mean()
            scaled: Tensor = self.scaler.scale(loss * (float("inf") if is_spike else 1.0))
            scaled.backward()  # type: ignore[no-untyped-call]
            return loss.detach()

        if isinstance(self.optimizer, torch.optim.LBFGS):
            loss = self.optimizer.step(closure)  # type: ignore[no-untyped-call]
        else:
            loss = closure()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        if isinstance(self.scheduler, lr_scheduler.ReduceLROnPlateau):
            self.scheduler.step(float(loss))
        else:
            self.scheduler.step()
        return float(loss)

    def weights(self) -> list[list[float]]:
        return [tensor.flatten().tolist() for tensor in self.model.state_dict().values()]

    def addresses(self) -> list[int]:
        return [tensor.data_ptr() for tensor in self._tensors()]

    def _tensors(self) -> Iterator[Tensor]:
        yield from self.model.parameters()
        yield from self.model.buffers()
        for group in self.optimizer.param_groups:
            yield from [value for value in group.values() if isinstance(value, Tensor)]
        for state in self.optimizer.state.values():
            yield from [value for value in state.values() if isinstance(value, Tensor)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_again_from_a_capture_gives_the_same_losses_and_weights(name: str) -> None:
    training = Training(OPTIMIZERS[name])
    training.train(10)
    captured = training.state.capture()
    losses, weights = training.train(10), training.weights()

    training.state.restore(captured.tree)

    assert training.train(10) == losses
    assert training.weights() == weights


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_schedule_goes_back_too(name: str) -> None:
    training = Training(make_scheduler=SCHEDULERS[name])
    training.train(10)
    captured = training.state.capture()
    losses, rate = training.train(10), training.optimizer.param_groups[0]["lr"]

    training.state.restore(captured.tree)

    assert training.train(10) == losses
    assert training.optimizer.param_groups[0]["lr"] == rate


def test_the_loss_scale_and_its_growth_tracker_go_back() -> None:
    training = Training(scaled=True)
    training.train(6)
    before = training.scaler.state_dict()
    captured = training.state.capture()
    training.train(8, spike_at=2)
    assert training.scaler.state_dict() != before

    training.state.restore(captured.tree)

    assert training.scaler.state_dict() == before


def test_a_scaler_that_was_not_used_yet_is_unused_again() -> None:
    training = Training(scaled=True)
    captured = training.state.capture()
    losses = training.train(6)

    training.state.restore(captured.tree)

    assert training.train(6) == losses


class WarmUp(LRScheduler):
    """Hands over to another scheduler, as one that is widely copied does, and decides by a method
    of its own. Torch's `state_dict` of it holds both, and leaves out only the optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer, after: LRScheduler) -> None:
        self.after = after
        self.rates: Callable[[], list[float | Tensor]] = self.warm
        super().__init__(optimizer)

    def warm(self) -> list[float | Tensor]:
        return [base * self.last_epoch / 5 for base in self.base_lrs]

    def get_lr(self) -> list[float | Tensor]:
        return self.rates()

    def step(self, epoch: int | None = None) -> None:
        if self.last_epoch < 5:
            super().step(epoch)
        else:
            self.after.step()


@pytest.mark.parametrize("before", [3, 8])
def test_a_scheduler_within_a_scheduler_goes_back_and_moves_the_rate_as_before(before: int) -> None:
    training = Training(
        make_scheduler=lambda o: WarmUp(o, lr_scheduler.CosineAnnealingLR(o, 30, eta_min=1e-4))
    )
    training.train(before)
    captured = training.state.capture().tree
    losses = training.train(9)
    rate = training.optimizer.param_groups[0]["lr"]
    training.state.restore(captured)

    assert training.train(9) == losses
    assert training.optimizer.param_groups[0]["lr"] == rate


def test_a_module_that_an_optimizers_group_names_stays_the_models_own() -> None:
    training = Training()
    named = training.optimizer.param_groups[0]["module"] = training.model[0]
    captured = training.state.capture().tree
    training.train(1)
    training.state.restore(captured)

    assert training.optimizer.param_groups[0]["module"] is named


def test_buffers_made_in_inference_mode_are_used_again_outside_of_it() -> None:
    training = Training()
    with torch.inference_mode():
        old = training.state.capture()
    training.train(1)
    captured = training.state.capture(old).tree
    losses = training.train(3)
    training.state.restore(captured)

    assert training.train(3) == losses


def test_what_is_made_anew_in_inference_mode_is_trained_outside_of_it() -> None:
    training = Training()
    training.train(2)
    captured = training.state.capture().tree
    losses = training.train(3)
    training.optimizer.state.clear()
    with torch.inference_mode():
        training.state.restore(captured)

    assert training.train(3) == losses


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if not name.startswith("lbfgs")])
def test_no_tensor_moves(name: str) -> None:
    training = Training(OPTIMIZERS[name])
    training.train(5)
    captured = training.state.capture()
    training.train(5)
    addresses = training.addresses()

    training.state.restore(captured.tree)

    assert training.addresses() == addresses


@pytest.mark.parametrize("name", ["sgd_momentum", "adamw_fused", "lbfgs"])
def test_optimizer_state_born_after_the_capture_is_gone(name: str) -> None:
    training = Training(OPTIMIZERS[name])
    captured = training.state.capture()
    losses = training.train(5)

    training.state.restore(captured.tree)

    assert not any(training.optimizer.state.values())
    assert training.train(5) == losses


@pytest.mark.parametrize("name", ["sgd_momentum", "adamw_fused", "nadam"])
def test_optimizer_state_lost_after_the_capture_comes_back(name: str) -> None:
    training = Training(OPTIMIZERS[name])
    training.train(5)
    captured = training.state.capture()
    losses = training.train(5)
    training.optimizer.state.clear()

    training.state.restore(captured.tree)

    assert training.train(5) == losses


def test_one_capture_can_be_put_back_twice() -> None:
    training = Training()
    training.train(5)
    captured = training.state.capture()
    losses = training.train(5)

    for _ in range(2):
        training.state.restore(captured.tree)
        assert training.train(5) == losses


def test_a_capture_into_old_buffers_makes_no_new_ones() -> None:
    training = Training()
    training.train(5)
    first = training.state.capture()
    address = first.tree["modules"]["model"]["parameters"]["0.weight"].data_ptr()  # type: ignore[index]
    training.train(5)

    second = training.state.capture(first)
    losses = training.train(5)

    assert second.tree["modules"]["model"]["parameters"]["0.weight"].data_ptr() == address  # type: ignore[index]
    training.state.restore(second.tree)
    assert training.train(5) == losses


def test_hyper_parameters_go_back() -> None:
    training = Training()
    captured = training.state.capture()
    training.optimizer.param_groups[0].update(betas=(0.1, 0.2), weight_decay=9.0, note="new")

    training.state.restore(captured.tree)

    group = training.optimizer.param_groups[0]
    assert (group["betas"], group["weight_decay"], "note" in group) == ((0.9, 0.999), 0.01, False)


def test_gradients_are_cleared_and_those_that_were_none_are_none() -> None:
    training = Training()
    training.train(1)
    next(training.model.parameters()).grad = None
    captured = training.state.capture()
    training.train(1)

    training.state.restore(captured.tree)

    assert training.model[0].weight.grad is None
    bias = training.model[0].bias.grad
    assert isinstance(bias, Tensor)
    assert not bias.any()


def test_gradients_that_are_gone_since_are_zero_again() -> None:
    """As where the program has caught an error and freed memory: an idle expert was stepped by a
    gradient of zeros, and is again."""
    training = Training()
    training.train(1)
    captured = training.state.capture()
    training.model.zero_grad(set_to_none=True)
    training.state.restore(captured.tree, is_resumed=True)
    assert training.model[0].bias.grad is None
    training.state.restore(captured.tree)

    bias = training.model[0].bias.grad
    assert isinstance(bias, Tensor)
    assert not bias.any()


def test_layers_unfrozen_since_are_frozen_again_and_those_frozen_since_trained() -> None:
    training = Training()
    training.model[0].requires_grad_(False)
    captured = training.state.capture()
    training.model[0].requires_grad_(True)
    last = training.model[-1].requires_grad_(False)

    training.state.restore(captured.tree)

    assert [p.requires_grad for p in training.model[0].parameters()] == [False, False]
    assert all(p.requires_grad for p in last.parameters())


def test_a_resumed_program_says_itself_which_layers_it_trains() -> None:
    training = Training()
    captured = training.state.capture()
    training.model[0].requires_grad_(False)

    training.state.restore(captured.tree, is_resumed=True)

    assert not training.model[0].weight.requires_grad


def test_a_capture_of_before_that_was_written_down_leaves_that_alone() -> None:
    training = Training()
    captured = training.state.capture()
    del captured.tree["modules"]["model"]["trained"]  # type: ignore[index]
    training.model[0].requires_grad_(False)

    training.state.restore(captured.tree)

    assert not training.model[0].weight.requires_grad


def test_two_modules_with_an_optimizer_each_go_back_together() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizers = [torch.optim.Adam(module.parameters()) for module in (first, second)]
    state = TrainingState({"generator": first, "critic": second}, optimizers)
    captured = state.capture()
    wanted = [p.tolist() for module in (first, second) for p in module.parameters()]
    for module, optimizer in zip((first, second), optimizers, strict=True):
        module(torch.ones(2)).sum().backward()
        optimizer.step()

    state.restore(captured.tree)

    assert [p.tolist() for module in (first, second) for p in module.parameters()] == wanted


def test_buffers_outside_the_state_dict_and_lazy_ones_go_back() -> None:
    module = nn.Module()
    module.register_buffer("seen", torch.zeros(2), persistent=False)
    module.register_buffer("cache", None)
    state = TrainingState({"model": module}, [])
    captured = state.capture()
    module.seen.add_(5)  # type: ignore[operator]
    module.cache = torch.ones(3)

    state.restore(captured.tree)

    assert module.seen.tolist() == [0.0, 0.0]  # type: ignore[operator]
    assert module.cache is None


def test_tensors_that_are_one_stay_one() -> None:
    rate = torch.tensor(0.1)
    groups = [{"params": [nn.Parameter(torch.ones(2))]}, {"params": [nn.Parameter(torch.ones(2))]}]
    optimizer = torch.optim.AdamW(groups, lr=rate)
    state = TrainingState({}, [optimizer])
    captured = state.capture()
    rate.fill_(0.7)

    state.restore(captured.tree)

    assert optimizer.param_groups[0]["lr"] is optimizer.param_groups[1]["lr"]
    assert rate.item() == pytest.approx(0.1)


def test_a_state_of_other_parameters_is_refused_and_changes_nothing() -> None:
    other = TrainingState({"model": nn.Linear(3, 3)}, [])
    module = nn.Linear(2, 2)
    wanted = module.weight.tolist()

    with pytest.raises(StateMismatchError, match=r"model\.weight: found torch.float32 \[2, 2\]"):
        TrainingState({"model": module}, []).restore(other.capture().tree)
    assert module.weight.tolist() == wanted


class Stubborn:
    """Accepts its state only as long as it is told to."""

    def __init__(self) -> None:
        self.count = 0
        self.refuses = False

    def state_dict(self) -> dict[str, object]:
        return {"count": self.count}

    def load_state_dict(self, state_dict: dict[str, object], /) -> None:
        if self.refuses and state_dict["count"] == 0:
            raise RuntimeError("not me")
        self.count = int(str(state_dict["count"]))


def test_an_object_that_refuses_its_state_leaves_everything_as_it_was() -> None:
    module, willing, stubborn = nn.Linear(2, 2), Stubborn(), Stubborn()
    state = TrainingState({"model": module}, [], (), (), {"a": willing, "b": stubborn})
    captured = state.capture()
    willing.count = stubborn.count = 3
    stubborn.refuses = True
    nn.init.ones_(module.weight)

    with pytest.raises(StateMismatchError, match=r"extra\.b: refuses its state"):
        state.restore(captured.tree)

    assert (willing.count, stubborn.count, module.weight.tolist()) == (3, 3, [[1.0] * 2] * 2)


class Struck:
    """An object at which Ctrl-C strikes, the first times that it is restored."""

    def __init__(self, times: float = 1) -> None:
        self.times = times

    def state_dict(self) -> dict[str, object]:
        return {}

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        if self.times:
            self.times -= 1
            raise KeyboardInterrupt


def test_an_interrupt_does_not_leave_half_a_state() -> None:
    module = nn.Linear(2, 2)
    state = TrainingState({"model": module}, [], extra={"struck": Struck()})
    before = module.weight.detach().clone()
    saved = state.capture()
    with torch.no_grad():
        module.weight.zero_()

    with pytest.raises(KeyboardInterrupt):
        state.restore(saved.tree)

    assert torch.equal(module.weight, before)


def test_an_object_that_interrupts_each_time_does_not_hold_the_training() -> None:
    state = TrainingState({"model": nn.Linear(2, 2)}, [], extra={"struck": Struck(math.inf)})
    saved = state.capture()

    with pytest.raises(KeyboardInterrupt):
        state.restore_whole(saved.tree)


def test_what_all_ranks_have_agreed_on_is_done_without_an_object_that_refuses() -> None:
    """Weights that stayed here alone would be trained apart from the others' for good."""
    module, willing, stubborn = nn.Linear(2, 2), Stubborn(), Stubborn()
    wanted = module.weight.tolist()
    state = TrainingState({"model": module}, [], (), (), {"a": stubborn, "b": willing})
    captured = state.capture()
    willing.count = stubborn.count = 3
    stubborn.refuses = True
    nn.init.ones_(module.weight)

    assert state.restore(captured.tree, is_agreed=True) == ["extra.a"]

    assert (willing.count, stubborn.count, module.weight.tolist()) == (0, 3, wanted)


def test_an_object_that_refuses_even_what_it_had_keeps_no_other_from_it() -> None:
    class Broken(Stubborn):
        def load_state_dict(self, state_dict: dict[str, object], /) -> None:
            raise RuntimeError("never")

    willing, noise = Stubborn(), torch.Generator().manual_seed(3)
    state = TrainingState({}, [], (), (), {"a": willing, "b": Broken(), "noise": noise})
    captured = state.capture()
    willing.count = 3
    torch.randn(3, generator=noise)
    before = noise.get_state().tolist()

    with pytest.raises(StateMismatchError, match=r"extra\.b: refuses its state"):
        state.restore(captured.tree)

    assert (willing.count, noise.get_state().tolist()) == (3, before)


def test_a_mask_of_minus_infinity_does_not_make_a_state_unsound() -> None:
    module = nn.Linear(2, 2)
    module.register_buffer("mask", torch.full((2, 2), float("-inf")).triu(1))
    state = TrainingState({"model": module}, [])
    assert state.capture().is_finite

    with torch.no_grad():
        module.bias[0] = float("nan")

    assert not state.capture().is_finite


def test_a_mask_that_the_first_forward_makes_does_not_either() -> None:
    module = nn.Linear(2, 2)
    state = TrainingState({"model": module}, [])
    module.register_buffer("mask", torch.full((2, 2), float("-inf")).triu(1))
    assert state.capture().is_finite

    module.register_buffer("mean", torch.zeros(2))
    assert state.capture().is_finite
    module.mean[0] = float("nan")  # type: ignore[operator]

    assert not state.capture().is_finite


def test_a_frozen_table_with_infinities_does_not_either_until_it_is_trained() -> None:
    module = nn.Linear(2, 2)
    table = nn.Parameter(torch.tensor([0.0, float("-inf")]), requires_grad=False)
    module.register_parameter("table", table)
    state = TrainingState({"model": module}, [])
    assert state.capture().is_finite

    table.requires_grad_()

    assert not state.capture().is_finite


def test_infinite_optimizer_state_makes_a_state_unsound() -> None:
    training = Training()
    training.train(1)
    first = training.optimizer.param_groups[0]["params"][0]
    training.optimizer.state[first]["exp_avg_sq"][0, 0] = float("inf")

    assert not training.state.capture().is_finite


def test_what_an_optimizer_keeps_under_a_name_goes_back() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    kept: dict[object, object] = optimizer.state  # type: ignore[assignment]  # pyright: ignore
    average = torch.zeros(2)
    kept |= {"k": 3, "average": average, "model": nn.Linear(2, 2)}
    state = TrainingState({}, [optimizer])
    captured = state.capture()
    kept |= {"k": 9, "later": 1}
    average.add_(1)

    state.restore(captured.tree)

    assert kept.keys() == {"k", "average", "model"}
    assert (kept["k"], average.tolist()) == (3, [0.0, 0.0])
    assert kept["average"] is average


class Bare(torch.optim.Optimizer):
    """Keeps each parameter's moment as it is, in no mapping."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            moment = self.state.setdefault(parameter, torch.zeros_like(parameter))
            moment.mul_(0.9).add_(parameter.grad)
            parameter.sub_(moment, alpha=0.1)


def test_a_state_that_is_no_mapping_goes_back_too() -> None:
    training = Training(Bare)
    training.train(2)
    captured = training.state.capture()
    losses = training.train(3)
    weight = next(training.model.parameters())
    moment = training.optimizer.state[weight]

    training.state.restore(captured.tree)

    assert training.train(3) == losses
    assert training.optimizer.state[weight] is moment


def test_a_state_that_is_no_mapping_is_put_into_an_optimizer_that_has_none_yet() -> None:
    training = Training(Bare)
    training.train(2)
    captured = training.state.capture()
    losses = training.train(3)
    resumed = Training(Bare)

    resumed.state.restore(captured.tree)

    assert resumed.train(3) == losses


def test_moments_are_not_given_to_parameters_that_stand_in_another_order() -> None:
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    state = TrainingState({"model": module}, [optimizer])
    captured = state.capture()
    optimizer.param_groups[0]["params"].reverse()

    with pytest.raises(StateMismatchError, match=r"found model\.1\.weight, wanted model\.0\."):
        state.restore(captured.tree)


def test_what_was_put_into_a_nested_state_later_is_gone() -> None:
    training = Training()
    training.train(1)
    first = training.optimizer.param_groups[0]["params"][0]
    nested: dict[str, object] = {"old": torch.ones(2)}
    training.optimizer.state[first]["nested"] = nested
    captured = training.state.capture()
    nested["new"] = 1

    training.state.restore(captured.tree)

    assert training.optimizer.state[first]["nested"] is nested
    assert list(nested) == ["old"]


def test_what_an_optimizer_steps_and_no_module_holds_goes_back() -> None:
    torch.manual_seed(0)
    free = torch.randn(3, requires_grad=True)
    optimizer = torch.optim.AdamW([free], lr=0.1)
    state = TrainingState({"": nn.Linear(1, 1)}, [optimizer])

    def train() -> list[float]:
        losses: list[float] = []
        for _ in range(3):
            loss = (free * torch.randn(3)).square().sum()
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            losses.append(loss.item())
        return losses

    train()
    captured = state.capture()
    losses = train()
    state.restore(captured.tree)

    assert train() == losses


def test_free_tensors_of_other_sizes_are_refused() -> None:
    two, three = (
        torch.optim.SGD([torch.ones(size, requires_grad=True)], lr=0.1) for size in (2, 3)
    )
    module = nn.Linear(1, 1)
    captured = TrainingState({"": module}, [three]).capture()

    with pytest.raises(StateMismatchError, match=r"parameter 0: found \[2\], wanted \[3\]"):
        TrainingState({"": module}, [two]).restore(captured.tree)


def test_a_free_tensor_that_is_not_finite_makes_a_state_unsound() -> None:
    optimizer = torch.optim.SGD([torch.full((2,), torch.nan, requires_grad=True)], lr=0.1)
    state = TrainingState({"": nn.Linear(1, 1)}, [optimizer])

    assert not state.capture().is_finite
