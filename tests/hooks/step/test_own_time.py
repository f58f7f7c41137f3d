"""How long a rank works by itself: up to its backward, and not in it."""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch
from torch import Tensor, distributed, nn
from torch._C._distributed_c10d import HashStore
from torch._dynamo.utils import counters
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]

from runwatch_hooks.faults import Faults
from runwatch_hooks.step.own_time import OwnTime, Spans

CPU = torch.device("cpu")
NAP_S = 0.02


class SlowBackward(torch.autograd.Function):
    """Takes its time in the backward, as a wait for other ranks does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        time.sleep(NAP_S)
        return grads[0]


@pytest.fixture
def own_time() -> Iterator[OwnTime]:
    made = OwnTime(Faults())
    made.install()
    yield made
    made.remove()


def slowly(x: Tensor) -> Tensor:
    """The same, by way of a slow backward."""
    return cast(Tensor, cast(Any, SlowBackward).apply(x))


def slow_loss() -> Tensor:
    return slowly(torch.ones(3, requires_grad=True)).sum()


def seconds(spans: Spans | None) -> float:
    assert spans is not None
    assert spans.is_there()
    return spans.seconds()


def test_what_lies_before_the_backward_is_its_own_and_the_backward_is_not(
    own_time: OwnTime,
) -> None:
    began = time.monotonic()
    own_time.begin(CPU)
    time.sleep(NAP_S)
    torch.autograd.backward(slow_loss())
    whole_s = time.monotonic() - began

    assert NAP_S <= seconds(own_time.take()) <= whole_s - NAP_S


def test_of_accumulated_gradients_each_part_counts(own_time: OwnTime) -> None:
    began = time.monotonic()
    own_time.begin(CPU)
    for _ in range(3):
        time.sleep(NAP_S)
        torch.autograd.backward(slow_loss())
    whole_s = time.monotonic() - began

    assert 3 * NAP_S <= seconds(own_time.take()) <= whole_s - 3 * NAP_S


def test_a_backward_within_a_backward_does_not_end_it(own_time: OwnTime) -> None:
    x = torch.ones(3, requires_grad=True)
    began = time.monotonic()
    own_time.begin(CPU)
    for _ in range(2):  # the nap comes after the inner backward, in the outer one
        loss = cast(
            Tensor, cast(Any, checkpoint)(torch.square, slowly(x), use_reentrant=True)
        ).sum()
        torch.autograd.backward(loss)
    whole_s = time.monotonic() - began

    assert seconds(own_time.take()) <= whole_s - 2 * NAP_S


def test_a_step_with_an_evaluation_in_it_says_nothing(own_time: OwnTime) -> None:
    own_time.begin(CPU)
    own_time.disturb()
    torch.autograd.backward(slow_loss())

    assert own_time.take() is None


def test_a_backward_that_is_captured_into_a_graph_says_nothing(
    own_time: OwnTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_time.begin(CPU)
    with monkeypatch.context() as capture:
        capture.setattr(torch.cuda, "is_initialized", lambda: True)
        capture.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        torch.autograd.backward(slow_loss())

    assert own_time.take() is None


def test_a_backward_that_raised_does_not_hide_the_next_step(own_time: OwnTime) -> None:
    own_time.begin(CPU)
    with pytest.raises(RuntimeError):
        torch.autograd.backward(torch.ones(3).sum())
    own_time.begin(CPU)
    time.sleep(NAP_S)
    torch.autograd.backward(slow_loss())

    assert seconds(own_time.take()) >= NAP_S


def test_torch_is_as_it_was_afterwards() -> None:
    before = torch.autograd.backward
    own_time = OwnTime(Faults())
    own_time.install()
    own_time.remove()

    assert torch.autograd.backward is before


@pytest.mark.skipif(not torch.cuda.is_available(), reason="wants an accelerator")
def test_on_an_accelerator_it_is_known_once_the_events_have_passed(own_time: OwnTime) -> None:
    device = torch.device("cuda")
    x = torch.ones(2048, 2048, device=device, requires_grad=True)
    own_time.begin(device)
    torch.autograd.backward((x @ x).sum())
    spans = own_time.take()
    assert spans is not None
    torch.cuda.synchronize()

    assert seconds(spans) > 0.0


@pytest.fixture
def lone_rank() -> Iterator[None]:
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("lone_rank")
def test_while_buffers_are_sent_a_rank_waits_for_others_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def send_slowly(*args: Any) -> None:
        time.sleep(NAP_S)  # as where another rank comes later
        send(*args)

    send = cast(Any, distributed)._broadcast_coalesced
    monkeypatch.setattr(distributed, "_broadcast_coalesced", send_slowly)
    model = DistributedDataParallel(nn.BatchNorm1d(3))
    own_time = OwnTime(Faults())
    own_time.install()
    began = time.monotonic()
    own_time.begin(CPU)
    time.sleep(NAP_S)
    torch.autograd.backward(model(torch.ones(2, 3)).sum())
    whole_s = time.monotonic() - began
    spans = own_time.take()
    own_time.remove()

    assert NAP_S <= seconds(spans) <= whole_s - NAP_S


@pytest.mark.usefixtures("lone_rank")
def test_a_compiled_module_that_sends_its_buffers_breaks_at_no_other_place() -> None:
    breaks: list[Counter[str]] = []
    for is_measured in (False, True):
        torch.compiler.reset()
        counters.clear()
        own_time = OwnTime(Faults())
        if is_measured:
            own_time.install()
            own_time.begin(CPU)
        model = torch.compile(DistributedDataParallel(nn.BatchNorm1d(3)), backend="eager")
        for _ in range(2):
            model(torch.ones(2, 3)).sum().backward()
        spans = own_time.take()
        own_time.remove()
        breaks.append(counters["graph_break"].copy())

    assert breaks[0] == breaks[1]
    assert spans is not None
