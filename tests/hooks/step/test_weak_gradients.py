"""Gradients are known again, keep no memory, and let torch exchange the tensors of a model."""

from collections.abc import Iterator

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import watched
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD
from torch.testing._internal.two_tensor import TwoTensor

from runwatch_hooks.step.gradient_marks import WeakGradient


@pytest.fixture
def exchanging() -> Iterator[None]:
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


def convert_as_it_trains(model: nn.Linear, line: RecordingLine) -> None:
    """In the midst of a step, where one optimizer has stepped and the other has not."""
    optimizers = [SGD([model.weight], 0.1), SGD([model.bias], 0.1)]
    watch = watched(model, *optimizers, line=line)
    for _ in range(3):
        model.zero_grad()
        torch.autograd.backward(model.weight.sum() + model.bias.sum())
        clip_grad_norm_([model.bias], 1.0)
        for optimizer in optimizers:
            optimizer.step()
        watch.step(loss=1.0)
    optimizers[1].step()
    model.double()
    watch.finish()


@pytest.mark.usefixtures("exchanging")
def test_a_watched_model_is_converted_by_an_exchange_of_its_tensors(line: RecordingLine) -> None:
    model = nn.Linear(2, 2)
    convert_as_it_trains(model, line)

    assert model.weight.grad is not None
    assert model.weight.grad.dtype == torch.float64


def test_a_watched_model_of_wrapped_parameters_is_converted(line: RecordingLine) -> None:
    model = nn.Linear(2, 2)
    wrapped: Tensor = TwoTensor(torch.ones(2, 2), torch.ones(2, 2))  # type: ignore[no-untyped-call]
    model.weight = nn.Parameter(wrapped)
    convert_as_it_trains(model, line)

    assert model.weight.grad is not None
    assert model.weight.grad.dtype == torch.float64


def test_a_gradient_that_was_written_to_is_the_same_and_its_like_is_not() -> None:
    grad = torch.ones(3)
    known = WeakGradient(grad)
    grad.mul_(0.5)

    assert known.is_of(grad)
    assert not known.is_of(grad.clone())
    assert not known.is_of(None)


def test_no_gradient_is_taken_for_one_that_is_gone() -> None:
    known = [WeakGradient(torch.ones(3)) for _ in range(100)]
    later = [torch.ones(3) for _ in range(100)]

    assert not any(one.is_of(grad) for one in known for grad in later)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_a_sparse_gradient_is_known_by_the_elements_that_it_holds(layout: torch.layout) -> None:
    grad = torch.eye(3).to_sparse(layout=layout)
    known = WeakGradient(grad)

    assert known.is_of(grad)
    assert not known.is_of(grad.clone())


def test_a_gradient_that_shows_no_memory_is_never_known_again() -> None:
    grad = torch.ones(3).to_mkldnn()

    assert not WeakGradient(grad).is_of(grad)
    assert not WeakGradient(torch.ones(3)).is_of(grad)
