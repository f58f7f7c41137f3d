"""What modules return is seen once, by name, and leaves no trace in the model."""

import copy
import io
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.utils import checkpoint

from runwatch_hooks.detail.module_taps import ModuleTaps
from runwatch_hooks.faults import Faults


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


class Odd(nn.Module):
    """Returns whatever a test wants of a tensor."""

    def __init__(self, wrap: Callable[[Tensor], object] = lambda x: x) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.wrap = wrap

    def forward(self, x: Tensor) -> object:
        return self.wrap(self.inner(x))


class Answering(nn.Module):
    """Has an answer to every name, as a wrapper that passes on what it does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def __getattr__(self, name: str) -> Any:
        return self._modules.get(name, 1)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.inner(x))


class Twice(nn.Module):
    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        if self.reentrant is None:
            return torch.as_tensor(self.layer(self.layer(x)))
        run = cast("Callable[..., Tensor]", checkpoint.checkpoint)
        return run(self.layer, x, use_reentrant=self.reentrant)


class Seen:
    """Taps, and what came of them: shapes by a module's name."""

    def __init__(self, model: nn.Module) -> None:
        self.shapes: dict[str, list[tuple[int, ...]]] = {}
        self.taps = ModuleTaps({"": model}, self._see, Faults())

    def _see(self, place: int, output: Tensor) -> None:
        assert not output.requires_grad
        self.shapes.setdefault(self.taps.names[place], []).append(tuple(output.shape))


def run(model: nn.Module, *, backward: bool = False) -> dict[str, list[tuple[int, ...]]]:
    seen = Seen(model)
    seen.taps.open()
    output = model(torch.ones(2, 3, requires_grad=True))
    if backward:
        torch.autograd.backward(output.sum())
    seen.taps.close()
    return seen.shapes


def pair(x: Tensor) -> object:
    return x, None


def answer_of_hugging_face(x: Tensor) -> object:
    return {"loss": x.sum(), "logits": x}


def named_pair(x: Tensor) -> object:
    return Pair(x, x.sum())


def nest(x: Tensor) -> object:
    return [torch.tensor([1, 2]), {"a": (x,)}]


@pytest.mark.parametrize("wrap", [pair, answer_of_hugging_face, named_pair, nest])
def test_the_first_tensor_of_numbers_counts(wrap: Callable[[Tensor], object]) -> None:
    assert run(Odd(wrap))["(model)"] == [(2, 3)]


@pytest.mark.parametrize("output", [None, 3.0, "text", [[[[torch.ones(2)]]]]])
def test_what_holds_none_is_passed_over(output: object) -> None:
    assert "(model)" not in run(Odd(lambda _: output))


def test_a_module_called_twice_is_seen_twice() -> None:
    assert run(Twice())["layer"] == [(2, 3), (2, 3)]


@pytest.mark.parametrize("reentrant", [False, True])
def test_activations_computed_again_in_the_backward_pass_are_not_seen_again(
    reentrant: bool,
) -> None:
    assert run(Twice(reentrant), backward=True)["layer"] == [(2, 3)]


def test_an_evaluation_is_not_seen() -> None:
    assert run(Odd().eval()) == {}


def test_a_container_is_its_last_child_and_not_a_layer_of_its_own() -> None:
    assert list(run(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))) == ["0", "1"]


def test_wrappers_do_not_show_in_the_names() -> None:
    assert list(run(nn.ModuleDict({"module": Odd()})["module"])) == ["inner", "(model)"]


def test_nothing_is_left_in_the_model() -> None:
    model = Odd()
    run(model)

    assert hooked(model) == []
    assert not vars(model)["_forward_pre_hooks"]


def hooked(model: Odd) -> list[str]:
    named = {"(model)": model, "inner": model.inner}
    return [name for name, module in named.items() if vars(module)["_forward_hooks"]]


def test_modules_bear_no_hook_in_an_evaluation_and_are_seen_again_after_it() -> None:
    """With one, torch's encoder of transformers leaves its faster path, and its last bits."""
    borne: list[list[str]] = []

    def note(x: Tensor) -> Tensor:
        borne.append(hooked(model))
        return x

    model = Odd(note)
    seen = Seen(model)
    seen.taps.open()
    for is_training in (True, False, True):
        model.train(is_training)(torch.ones(2, 3))
    seen.taps.close()

    assert borne == [["(model)", "inner"], [], ["(model)", "inner"]]
    assert seen.shapes == {"(model)": [(2, 3)] * 2, "inner": [(2, 3)] * 2}


def test_a_copy_or_a_pickle_made_meanwhile_does_nothing_and_needs_nothing_of_ours() -> None:
    model = nn.Linear(3, 3)
    seen = Seen(model)
    seen.taps.open()
    copied = copy.deepcopy(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded: nn.Module = torch.load(file, weights_only=False)

    copied(torch.ones(2, 3))
    loaded(torch.ones(2, 3))

    assert seen.shapes == {}
    assert b"runwatch" not in file.getvalue()


def test_a_module_that_answers_every_name_is_not_taken_for_a_compiled_one() -> None:
    model = Answering()
    seen = Seen(model)
    seen.taps.open()
    model(torch.ones(2, 3))
    seen.taps.close()

    assert seen.shapes == {"(model)": [(2, 3)], "inner": [(2, 3)]}


@pytest.mark.slow
@pytest.mark.parametrize("compile_whole", [True, False])
def test_compiled_modules_are_left_alone_and_not_compiled_again(compile_whole: bool) -> None:
    torch.compiler.reset()
    counters.clear()
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    if compile_whole:
        compiled = cast(nn.Module, torch.compile(model, backend="eager"))
        watched = model  # as who compiles after attaching
    else:
        model[0].compile(backend="eager")
        compiled = watched = model
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(torch.ones(2, 3))
        before = dict(counters["stats"])
        seen = Seen(watched)
        for _ in range(12):  # torch gives up after 8 compilations of one thing
            seen.taps.open()
            compiled(torch.ones(2, 3))
            seen.taps.close()
            compiled(torch.ones(2, 3))

    assert dict(counters["stats"]) == before
    assert "0" not in seen.shapes
