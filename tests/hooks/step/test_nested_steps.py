"""Steps within steps of the same optimizer, and steps that raise."""

import gc
from collections.abc import Callable
from typing import Any, cast
from weakref import ref

import pytest
import torch
from torch import nn
from torch.optim import SGD

from runwatch_hooks.step.optimizer_steps import NestedSteps, hear_after_steps, hear_before_steps


class Child(SGD):
    """Torch wraps the step of the parent too, once one of those was made."""

    def __init__(self, parameters: Any) -> None:
        SGD(parameters, lr=0.1)
        super().__init__(parameters, lr=0.1)
        self.before_parents: Callable[[], object] = lambda: None

    def step(self, closure: Any = None) -> Any:
        self.before_parents()
        return cast(Any, super().step(closure))


class Ear:
    def __init__(self) -> None:
        self.nesting = NestedSteps()
        self.heard: list[str] = []

    def before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.heard.append("begins" if self.nesting.enter(optimizer) else "within")

    def after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.heard.append("ends" if self.nesting.leave(optimizer) else "within")


@pytest.fixture
def ear() -> Any:
    ear = Ear()
    handles = hear_before_steps(ear.before), hear_after_steps(ear.after)
    yield ear
    for handle in handles:
        handle.remove()


@pytest.fixture
def optimizer() -> Child:
    return Child([nn.Parameter(torch.ones(1))])


def fail(*_: object) -> None:
    raise ZeroDivisionError


def step_that_raises(optimizer: Child) -> None:
    optimizer.before_parents = fail
    with pytest.raises(ZeroDivisionError):
        optimizer.step()
    optimizer.before_parents = lambda: None


def test_of_a_step_that_calls_its_parents_the_outer_one_counts(ear: Ear, optimizer: Child) -> None:
    optimizer.step()

    assert ear.heard == ["begins", "within", "within", "ends"]


def test_a_step_after_one_that_raised_is_no_part_of_it(ear: Ear, optimizer: Child) -> None:
    step_that_raises(optimizer)
    optimizer.step()

    assert ear.heard == ["begins", "begins", "within", "within", "ends"]


def test_a_step_that_an_error_within_did_not_end_has_an_end(ear: Ear, optimizer: Child) -> None:
    def step_of_its_own() -> None:
        optimizer.before_parents = lambda: None
        broken = optimizer.register_step_pre_hook(fail)
        with pytest.raises(ZeroDivisionError):
            SGD.step(optimizer)
        broken.remove()

    optimizer.before_parents = step_of_its_own
    optimizer.step()

    assert ear.heard == ["begins", "within", "within", "within", "ends"]


def test_what_a_step_that_raised_was_at_is_let_go(ear: Ear, optimizer: Child) -> None:
    class Batch: ...

    batch = Batch()
    kept = ref(batch)

    def train(batch: Batch) -> None:
        step_that_raises(optimizer)

    train(batch)
    del batch
    gc.collect()

    assert kept() is None
