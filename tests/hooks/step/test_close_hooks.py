"""Hooks that stand closer to an optimizer's step than all others do."""

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from runwatch_hooks.step.optimizer_steps import CloseHandle, hear_close_to_steps


class Recorder(SGD):
    """Writes down that it steps."""

    def __init__(self, heard: list[str]) -> None:
        super().__init__([nn.Parameter(torch.ones(1))], lr=0.1)
        self.heard = heard

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.heard.append("step")


class Whole(SGD):
    """Is copied and saved with its hooks, which torch's own leave out."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where other tests did not end their runs, those stand there too."""
    monkeypatch.setattr("runwatch_hooks.step.optimizer_steps._PLACE._handles", ())


@pytest.fixture
def heard() -> list[str]:
    return []


@pytest.fixture
def optimizer(heard: list[str]) -> Recorder:
    return Recorder(heard)


@pytest.fixture
def close(heard: list[str], optimizer: Recorder) -> Iterator[CloseHandle]:
    handle = hear(heard, "close", optimizer)
    yield handle
    handle.remove()


def says(heard: list[str], words: str) -> Callable[..., None]:
    def hook(*_: object) -> None:
        heard.append(words)

    return hook


def hear(heard: list[str], name: str, *optimizers: Optimizer) -> CloseHandle:
    before, after = says(heard, f"{name} before"), says(heard, f"{name} after")
    return hear_close_to_steps(before, after, optimizers)


def hear_own(heard: list[str], optimizer: Optimizer, name: str) -> None:
    optimizer.register_step_pre_hook(says(heard, f"{name} before"))
    optimizer.register_step_post_hook(says(heard, f"{name} after"))


def leaves(handle: CloseHandle) -> Callable[..., None]:
    def hook(*_: object) -> None:
        handle.remove()

    return hook


def hooks_of(optimizer: Any) -> list[object]:
    return [*optimizer._optimizer_step_pre_hooks, *optimizer._optimizer_step_post_hooks]


def test_the_programs_own_hooks_stand_further_out_whenever_they_come(heard: list[str]) -> None:
    optimizer = Recorder(heard)
    hear_own(heard, optimizer, "first")
    handle = hear(heard, "close", optimizer)
    hear_own(heard, optimizer, "second")
    optimizer.step()
    handle.remove()

    assert heard == [
        *("first before", "second before", "close before"),
        "step",
        *("close after", "first after", "second after"),
    ]


def test_a_hook_that_the_program_puts_first_after_a_step_is_overtaken(
    heard: list[str], close: CloseHandle, optimizer: Any
) -> None:
    hear_own(heard, optimizer, "own")
    hooks = optimizer._optimizer_step_post_hooks
    hooks.move_to_end(next(reversed(hooks)), last=False)
    optimizer.step()

    assert heard == ["own before", "close before", "step", "close after", "own after"]


def test_those_who_come_later_stand_within(
    heard: list[str], close: CloseHandle, optimizer: Recorder
) -> None:
    inner = hear(heard, "inner")
    optimizer.step()
    inner.remove()

    assert heard == ["close before", "inner before", "step", "inner after", "close after"]


def test_an_optimizer_made_later_is_heard_from_its_first_step(
    heard: list[str], close: CloseHandle
) -> None:
    Recorder(heard).step()

    assert heard == ["close before", "step", "close after"]


def test_an_optimizer_that_was_not_made_as_torchs_are_has_no_hooks_and_harms_nothing(
    heard: list[str], optimizer: Recorder
) -> None:
    class Wrapper(Optimizer):
        def __init__(self) -> None:
            pass

        def step(self, closure: object = None) -> None:  # type: ignore[override]
            optimizer.step()

    handle = hear(heard, "close", wrapper := Wrapper(), optimizer)
    wrapper.step()
    handle.remove()

    assert heard == ["close before", "step", "close after"]


def test_what_one_returns_takes_the_place_of_the_steps_arguments(
    heard: list[str], optimizer: Recorder
) -> None:
    given: list[object] = []

    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        return args, {"closure": "another"}

    def note(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        given.append(kwargs)

    optimizer.register_step_post_hook(note)
    handle = hear_close_to_steps(before, says(heard, "after"), [optimizer])
    optimizer.step()
    handle.remove()

    assert given == [{"closure": "another"}]


def test_when_the_last_has_left_an_optimizer_is_as_it_was(heard: list[str]) -> None:
    optimizer = Recorder(heard)
    hear_own(heard, optimizer, "own")
    before = hooks_of(optimizer)
    one, other = hear(heard, "one", optimizer), hear(heard, "other", optimizer)
    one.remove()
    optimizer.step()
    other.remove()
    optimizer.step()

    assert hooks_of(optimizer) == before
    assert heard == [
        *("own before", "other before", "step", "other after", "own after"),
        *("own before", "step", "own after"),
    ]


@pytest.mark.parametrize("place", ["register_step_pre_hook", "register_step_post_hook"])
def test_to_leave_in_the_midst_of_a_step_raises_nothing(
    heard: list[str], optimizer: Any, place: str
) -> None:
    handle = hear(heard, "close", optimizer)
    getattr(optimizer, place)(leaves(handle))
    hear_own(heard, optimizer, "own")
    optimizer.step()
    optimizer.step()

    assert heard[-4:] == ["own after", "own before", "step", "own after"]
    assert len(hooks_of(optimizer)) == 5  # ours stay, and tell nobody


def test_where_another_thread_may_be_about_to_step_they_stay_and_tell_nobody(
    heard: list[str], optimizer: Recorder
) -> None:
    handle = hear(heard, "close", optimizer)
    ends = threading.Thread(target=handle.remove)
    ends.start()
    ends.join()
    optimizer.step()

    assert heard == ["step"]
    assert len(hooks_of(optimizer)) == 2


def test_a_later_run_takes_the_place_of_one_that_stayed(
    heard: list[str], optimizer: Recorder
) -> None:
    handle = hear(heard, "close", optimizer)
    optimizer.register_step_post_hook(leaves(handle))
    optimizer.step()
    later = hear(heard, "later", optimizer)
    optimizer.step()
    later.remove()

    assert heard[-3:] == ["later before", "step", "later after"]
    assert len(hooks_of(optimizer)) == 1


def test_hooks_of_all_optimizers_stand_further_out_as_well(
    heard: list[str], optimizer: Recorder
) -> None:
    theirs = register_optimizer_step_post_hook(says(heard, "theirs"))
    handle = hear(heard, "close", optimizer)
    optimizer.step()
    handle.remove()
    theirs.remove()

    assert heard == ["close before", "step", "close after", "theirs"]


def by_pickle(optimizer: Whole) -> Whole:
    loaded: Whole = pickle.loads(pickle.dumps(optimizer))
    return loaded


@pytest.mark.parametrize("copied", [by_pickle, copy.deepcopy])
def test_an_optimizer_that_is_copied_with_its_hooks_takes_none_of_ours_along(
    copied: Callable[[Whole], Whole], heard: list[str]
) -> None:
    optimizer = Whole([nn.Parameter(torch.ones(1))], lr=0.1)
    handle = hear(heard, "close", optimizer)
    optimizer.step()
    twin = copied(optimizer)
    handle.remove()
    twin.step()

    assert heard == ["close before", "close after"]
    assert hooks_of(optimizer) == []
