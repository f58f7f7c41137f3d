"""Torch with the hook, and as it was before."""

import copy
import os
import pickle
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import tiny_gpt, train_one, watched
from torch import nn
from torch.nn.utils import clip_grad, clip_grad_norm_
from torch.optim.optimizer import (
    _global_optimizer_post_hooks,  # pyright: ignore[reportPrivateUsage]
    _global_optimizer_pre_hooks,  # pyright: ignore[reportPrivateUsage]
)
from torch.utils.data import DataLoader, TensorDataset

from runwatch_hooks.faults import Faults
from runwatch_hooks.step.probe import Probe
from runwatch_hooks.wraps import Wrap

pytestmark = pytest.mark.usefixtures("alone")


def facts() -> list[object]:
    """All of torch that the hook touches, and who listens there: a run of an earlier test may."""
    touched: list[object] = [
        vars(torch.autograd)["_engine_run_backward"],
        vars(clip_grad)["_get_total_norm"],
        vars(clip_grad)["_clip_grads_with_norm_"],
        vars(clip_grad)["_group_tensors_by_device_and_dtype"],
        nn.utils.get_total_norm,
        nn.utils.clip_grads_with_norm_,
        nn.utils.clip_grad_value_,
        vars(torch.amp.GradScaler)["unscale_"],
        vars(torch.amp.GradScaler)["step"],
    ]
    return [
        *touched,
        [one.listeners for one in touched if isinstance(one, Wrap)],
        list(_global_optimizer_pre_hooks.values()),
        list(_global_optimizer_post_hooks.values()),
    ]


@pytest.fixture
def probe() -> Iterator[Probe]:
    model = tiny_gpt()
    made = Probe({"": model}, [torch.optim.SGD(model.parameters())], Faults())
    yield made
    made.remove()


def test_finishing_leaves_torch_as_it_was(line: RecordingLine) -> None:
    before = facts()
    model = tiny_gpt()
    watch = watched(model, torch.optim.SGD(model.parameters()), line=line)
    assert facts() != before
    watch.finish()

    assert facts() == before


def test_installing_twice_is_installing_once(probe: Probe) -> None:
    before = facts()
    probe.install()
    once = facts()
    probe.install()
    assert facts() == once
    probe.remove()
    probe.remove()

    assert facts() == before


def test_two_watches_see_their_own_and_leave_in_any_order() -> None:
    before = facts()
    lines = RecordingLine(), RecordingLine()
    models = tiny_gpt(1), tiny_gpt(2)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    first, second = (
        watched(model, optimizer, line=line)
        for model, optimizer, line in zip(models, optimizers, lines, strict=True)
    )
    first.step(train_one(models[0], optimizers[0], max_norm=0.1))
    first.finish()
    second.step(train_one(models[1], optimizers[1], max_norm=0.1))
    second.finish()

    assert [len(line.rows) for line in lines] == [1, 1]
    assert [line.metric("clipped") for line in lines] == [[1.0], [1.0]]
    assert facts() == before


def test_a_wrap_around_ours_survives_our_leaving(probe: Probe) -> None:
    original = nn.utils.get_total_norm
    probe.install()
    theirs = Wrap(nn.utils.get_total_norm, nn.utils, "get_total_norm")
    nn.utils.get_total_norm = theirs
    try:
        probe.remove()

        assert nn.utils.get_total_norm is theirs
        assert theirs([torch.full((4,), 2.0)]).item() == 4.0
    finally:
        nn.utils.get_total_norm = original


def test_a_wrapped_function_still_looks_like_the_one_it_wraps(probe: Probe) -> None:
    probe.install()

    assert nn.utils.get_total_norm.__doc__ == nn.utils.get_total_norm.__wrapped__.__doc__  # type: ignore[attr-defined]
    assert torch.amp.GradScaler.step.__name__ == "step"


def functions() -> list[Any]:
    return [
        vars(torch.autograd)["_engine_run_backward"],
        nn.utils.clip_grad_value_,
        nn.utils.get_total_norm,
        vars(clip_grad)["_get_total_norm"],
        torch.amp.GradScaler.step,
        sys.exit,
    ]


def test_a_wrapped_function_is_pickled_by_its_name(probe: Probe) -> None:
    originals = functions()
    probe.install()
    wrapped = functions()
    pickled = [pickle.dumps(one) for one in wrapped]

    assert [pickle.loads(one) for one in pickled] == wrapped != originals
    probe.remove()
    assert [pickle.loads(one) for one in pickled] == originals
    assert not any(b"runwatch" in one for one in pickled), "who reads it may not have it"


def test_copies_of_a_wrapped_function_are_itself(probe: Probe) -> None:
    probe.install()
    held = {"clip": nn.utils.clip_grad_value_}

    assert copy.deepcopy(held) == held
    assert copy.copy(held["clip"]) is held["clip"]


def test_parameters_given_as_a_generator_are_all_clipped(line: RecordingLine) -> None:
    model = tiny_gpt()
    watch = watched(model, torch.optim.SGD(model.parameters()), line=line)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    total = clip_grad_norm_((one for one in model.parameters()), 1.0)
    watch.finish()
    after = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])

    assert total.item() > 1.0
    assert after.item() == pytest.approx(1.0, rel=1e-4)


def test_a_forked_child_is_not_seen(line: RecordingLine) -> None:
    model = tiny_gpt()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = watched(model, optimizer, line=line)
    pid = os.fork()
    if pid == 0:
        train_one(model, optimizer)
        report = watch.step(1.0)
        os._exit(0 if not line.rows and report.step == 0 else 1)
    _, status = os.waitpid(pid, 0)
    watch.step(train_one(model, optimizer))

    assert os.waitstatus_to_exitcode(status) == 0
    assert [row.step for row in line.rows] == [0]


# Python 3.12 warns of forks beside threads, which is what a loader's workers are.
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_loaders_workers_train_nothing_and_harm_nothing(line: RecordingLine) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = watched(model, optimizer, line=line)
    loader = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=2, num_workers=2)
    for (inputs,) in loader:
        optimizer.zero_grad()
        loss = model(inputs).sum()
        loss.backward()
        optimizer.step()
        watch.step(loss)

    assert [row.step for row in line.rows] == [0, 1, 2, 3]
    assert watch.num_faults == 0


class UnreadableRate:
    """No reading of ours survives it."""

    def __float__(self) -> float:
        raise RuntimeError("asked for too early")


def test_a_fault_of_ours_ends_the_measuring_and_not_the_training(
    line: RecordingLine, caplog: pytest.LogCaptureFixture
) -> None:
    before = facts()
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = watched(model, optimizer, line=line)
    optimizer.param_groups[0]["lr"] = UnreadableRate()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with pytest.raises((TypeError, RuntimeError)):  # torch's own, not ours
        optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    watch.step(1.0)
    watch.step(2.0)

    assert watch.num_faults == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert line.kinds() == ["hook_fault"]
    assert line.metric("loss") == [1.0, 2.0]
    watch.finish()
    assert facts() == before
