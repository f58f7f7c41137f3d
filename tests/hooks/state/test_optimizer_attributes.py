"""Optimizers of research code go back whole: also what lies beside their `state`."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from runwatch_hooks.state import LrScale, TrainingState, optimizers
from runwatch_hooks.state.optimizers import attributes_of, restore_attributes
from runwatch_hooks.state.tree import InPlace


class Sam(Optimizer):
    """Steps another optimizer, which has groups in common with it, and a state of its own."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        super().__init__(parameters, {"lr": 0.05})
        self.base_optimizer = SGD(self.param_groups, momentum=0.9)
        self.param_groups = self.base_optimizer.param_groups

    def step(self, closure: object = None) -> None:  # type: ignore[override]  # pyright: ignore
        self.base_optimizer.step()


class Lookahead(Optimizer):
    """Wraps an optimizer that was made before it, and keeps slow weights in a state of its own."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.optimizer = Adam(parameters, lr=0.05)
        super().__init__(self.optimizer.param_groups, {})
        self.num_steps = 0

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]  # pyright: ignore
        self.optimizer.step()
        self.num_steps += 1
        for one in self.param_groups[0]["params"]:
            slow = self.state[one].setdefault("slow", one.detach().clone())
            if self.num_steps % 3 == 0:
                one.copy_(slow.lerp_(one, 0.5))


class Counting(Optimizer):
    """Divides its rate by a count of its own, and sets it by a table."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        super().__init__(parameters, {"lr": 0.05})
        self.t = 0
        self.rates = [0.5, {"decay": torch.ones(())}]

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]  # pyright: ignore
        self.t += 1
        rest: Any = self.rates[1]
        rest["decay"].mul_(0.9)
        for one in self.param_groups[0]["params"]:
            one.sub_(one.grad * rest["decay"], alpha=0.5 / self.t)


class ByParameter(Optimizer):
    """Keeps moments in a mapping of its own, by the parameters or by their ids."""

    def __init__(self, parameters: Sequence[Tensor], key: Callable[[Tensor], object]) -> None:
        super().__init__(parameters, {"lr": 0.05})
        self.moments: dict[object, Tensor] = defaultdict(lambda: torch.zeros(()))
        self._key = key
        self._parameters = list(parameters)

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]  # pyright: ignore
        for one in self._parameters:
            assert one.grad is not None
            self.moments[self._key(one)] = self.moments[self._key(one)] * 0.9 + one.grad
            one.sub_(self.moments[self._key(one)], alpha=0.05)


class Collecting(Optimizer):
    """Steps by the mean of three gradients, and has a set of the parameters that do not decay."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        super().__init__(parameters, {"lr": 0.05})
        self.collected: list[list[Tensor]] = []
        self.undecayed = {one for one in parameters if one.ndim == 1}
        self.named = {"bias": {one: 0.0 for one in parameters if one.ndim == 1}}

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]  # pyright: ignore
        parameters = self.param_groups[0]["params"]
        self.collected.append([one.grad.clone() for one in parameters])
        if len(self.collected) < 3:
            return
        for one, *gradients in zip(parameters, *self.collected, strict=True):
            one.mul_(1.0 if one in self.undecayed else 0.9)
            one.sub_(sum(gradients), alpha=0.05 / 3)
        self.collected.clear()


class Several(Optimizer):
    """Steps a few optimizers, each for some of the parameters, which lie in a list or a mapping."""

    def __init__(self, parameters: Sequence[Tensor], *, by_name: bool = False) -> None:
        matrices = [one for one in parameters if one.ndim == 2]
        vectors = [one for one in parameters if one.ndim == 1]
        inner = {"momentum": SGD(matrices, 0.05, momentum=0.9), "adam": Adam(vectors, 0.05)}
        super().__init__([group for one in inner.values() for group in one.param_groups], {})
        self.optimizers = inner if by_name else list(inner.values())

    def step(self, closure: object = None) -> None:  # type: ignore[override]  # pyright: ignore
        inner = self.optimizers
        for one in inner.values() if isinstance(inner, dict) else inner:
            one.step()


def several_by_name(parameters: Sequence[Tensor]) -> Optimizer:
    return Several(parameters, by_name=True)


def itself(parameter: Tensor) -> object:
    return parameter


MAKES: dict[str, Callable[[Sequence[Tensor]], Optimizer]] = {
    "sam": Sam,
    "lookahead": Lookahead,
    "several": Several,
    "several_by_name": several_by_name,
    "counting": Counting,
    "collecting": Collecting,
    "by_parameter": lambda parameters: ByParameter(parameters, itself),
    "by_id": lambda parameters: ByParameter(parameters, id),
}


class Training:
    def __init__(self, make: Callable[[Sequence[Tensor]], Optimizer]) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        self.optimizer = make(list(self.model.parameters()))
        self.state = TrainingState({"": self.model}, [self.optimizer])

    def train(self, num_steps: int) -> list[float]:
        losses: list[float] = []
        for _ in range(num_steps):
            self.model.zero_grad()
            loss = self.model(torch.randn(8, 4)).square().mean()
            torch.autograd.backward(loss)
            self.optimizer.step()
            losses.append(loss.item())
        return losses


@pytest.mark.parametrize("name", MAKES)
@pytest.mark.parametrize("before", [0, 4])
def test_training_again_from_a_capture_gives_the_same_losses(name: str, before: int) -> None:
    training = Training(MAKES[name])
    training.train(before)
    captured = training.state.capture()
    losses = training.train(7)

    training.state.restore(captured.tree)

    assert training.train(7) == losses


@pytest.mark.parametrize("name", ["sam", "lookahead", "several", "several_by_name"])
def test_a_resumed_program_has_the_moments_of_what_its_optimizer_wraps(name: str) -> None:
    training = Training(MAKES[name])
    training.train(3)
    captured = training.state.capture()
    losses = training.train(5)
    resumed = Training(MAKES[name])

    resumed.state.restore(captured.tree, is_resumed=True)

    # Lookahead counts in an attribute: there its slow weights come in at other steps.
    assert resumed.train(5)[:3] == losses[:3]


@pytest.mark.parametrize("is_resumed", [False, True])
def test_attributes_that_another_process_saved_are_not_restored(
    is_resumed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be its rank's, or options that the program was begun again with. A rollback, too,
    may go back to a state of before a resume."""
    training = Training(Counting)
    training.train(3)
    captured = training.state.capture()
    resumed = Training(Counting)
    if not is_resumed:
        monkeypatch.setattr(optimizers, "_THIS_PROCESS", "the next")

    resumed.state.restore(captured.tree, is_resumed=is_resumed)

    assert isinstance(resumed.optimizer, Counting)
    assert resumed.optimizer.t == 0


@pytest.mark.parametrize("name", ["sam", "several", "several_by_name"])
def test_a_wrapped_optimizer_is_no_other_one_of_the_run(name: str) -> None:
    """A capture has as many as `attach` was given, so that a resumed program can take it."""
    training = Training(MAKES[name])
    scale = LrScale([training.optimizer], {"": training.model}, on_new=training.state.follow)
    scale.install()
    training.train(2)
    scale.close()

    assert list(training.state.optimizers.values()) == [training.optimizer]


def test_a_moment_of_a_wrapped_optimizer_that_is_not_finite_makes_a_state_unsound() -> None:
    training = Training(Sam)
    training.train(1)
    assert isinstance(training.optimizer, Sam)
    states = training.optimizer.base_optimizer.state
    states[next(training.model.parameters())]["momentum_buffer"][0, 0] = float("inf")

    assert not training.state.capture().is_finite


def test_neither_parameters_nor_what_cannot_be_copied_is_kept() -> None:
    training = Training(lambda parameters: ByParameter(parameters, itself))
    found = attributes_of(training.optimizer)

    assert found["kept"] == {"moments": {}}
    assert found["by_parameter"] == {}


def test_what_looks_parameters_up_is_left_to_the_program() -> None:
    """A copy of a parameter is another key, and no member of the set."""
    training = Training(Collecting)
    captured = training.state.capture()

    training.state.restore(captured.tree)

    assert isinstance(training.optimizer, Collecting)
    biases = [one for one in training.model.parameters() if one.ndim == 1]
    assert all(one in training.optimizer.undecayed for one in biases)
    assert all(one in training.optimizer.named["bias"] for one in biases)
    assert attributes_of(training.optimizer)["kept"] == {"collected": []}


def test_a_tensor_that_is_gone_by_now_comes_back_on_its_device() -> None:
    optimizer = Training(Collecting).optimizer
    assert isinstance(optimizer, Collecting)
    optimizer.collected = [[torch.ones(2, device="meta")]]
    found = attributes_of(optimizer)
    optimizer.collected = []
    on_host = {"collected": [[torch.ones(2)]]}

    restore_attributes(optimizer, {**found, "kept": on_host}, InPlace())

    assert optimizer.collected[0][0].device.type == "meta"


def test_optimizers_that_hold_each_other_are_captured_once() -> None:
    first, second = (SGD([nn.Parameter(torch.ones(2))], 0.1) for _ in range(2))
    vars(first)["other"], vars(second)["other"] = second, first
    tree: Any = TrainingState({}, [first]).capture().tree

    assert list(tree["optimizers"][0]["wrapped"]) == ["other"]
