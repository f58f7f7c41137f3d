"""A fault of ours in whatever the training calls is counted, told once, and stays with us."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false
# (a part of ours is broken on purpose; torch leaves parts of its own interface without types)

import signal
from collections.abc import Callable
from typing import cast

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import watched
from torch import Tensor, nn
from torch.optim import SGD

from runwatch_hooks.detail import Closeup, Detail, Schedule
from runwatch_hooks.faults import Faults
from runwatch_hooks.observers.mistakes.zero_grad import SAME_FOR, ZeroGrad
from runwatch_hooks.run import LiveWatch
from runwatch_hooks.settings.options import Options
from runwatch_hooks.state import LrScale
from runwatch_hooks.step.observer import OptimizerStep


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def broken(*_: object) -> None:
    raise Wordless


def parameter() -> nn.Parameter:
    return nn.Parameter(torch.ones(2))


def test_a_part_that_cannot_be_switched_off_harms_nothing() -> None:
    faults = Faults()

    with faults.guard("part", broken):
        broken()

    assert faults.count == 2
    assert faults.untold() == [
        "part: Wordless: (without words)",
        "part, as it was switched off: Wordless: (without words)",
    ]


def test_what_ends_a_program_passes() -> None:
    with pytest.raises(KeyboardInterrupt), Faults().guard("part", broken):
        raise KeyboardInterrupt


class TimeIsUp(Exception):
    """What a program's own handler of a signal raises."""


class Handler:
    def __call__(self, number: int, frame: object) -> None:
        self.raise_it()

    def raise_it(self) -> None:
        raise TimeIsUp


def test_what_a_signals_handler_raises_is_the_programs() -> None:
    faults = Faults()
    before = signal.signal(signal.SIGUSR1, Handler())
    try:
        with pytest.raises(TimeIsUp), faults.guard("part", broken):
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert faults.count == 0


class Unseen(Detail):
    def _see(self, place: int, output: Tensor) -> None:
        broken()


def test_activations_that_cannot_be_measured_harm_no_forward_and_are_off() -> None:
    faults = Faults()
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    detail = Unseen({"": model}, Schedule(None, 1), faults)
    for step in range(4):
        detail.begin_step(step)
        model(torch.ones(2))
        detail.end_step()

    assert faults.count == 1
    assert not model[0]._forward_hooks


def test_detail_that_cannot_be_told_costs_no_step_its_row(
    monkeypatch: pytest.MonkeyPatch, line: RecordingLine
) -> None:
    monkeypatch.setattr(Closeup, "rows", broken)
    model = nn.Linear(2, 2)
    optimizer = SGD(model.parameters(), lr=0.1)
    watch: LiveWatch = watched(model, optimizer, line=line, options=Options(histograms=2))
    for _ in range(4):
        optimizer.zero_grad()
        torch.autograd.backward(model(torch.ones(2)).sum())
        optimizer.step()
        watch.step(1.0)
    watch.finish()

    assert [row.step for row in line.rows if "grad_norm" in row.metrics] == [0, 1, 2, 3]
    assert watch.num_faults == 2


def test_a_scale_that_cannot_be_put_in_leaves_the_step_the_schedules_rate() -> None:
    class Noting(SGD):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            rates.append([float(group["lr"]) for group in self.param_groups])

    rates: list[list[float]] = []
    with torch.inference_mode():
        odd = torch.tensor(0.5)  # torch does not count what is written to it
    groups: list[dict[str, object]] = [
        {"params": [parameter()]},
        {"params": [parameter()], "lr": odd},
    ]
    optimizer = Noting(groups, lr=0.25)
    faults = Faults()
    lr_scale = LrScale([optimizer], faults=faults)
    lr_scale.install()
    lr_scale.set(0.5)

    optimizer.step()
    optimizer.step()

    lr_scale.close()
    assert rates == [[0.25, 0.5], [0.25, 0.5]]
    assert faults.count == 2
    assert len(faults.untold()) == 1


def test_a_later_optimizer_that_cannot_be_followed_steps_all_the_same() -> None:
    model = nn.Linear(1, 1)
    faults = Faults()
    lr_scale = LrScale([], {"": model}, on_new=broken, faults=faults)
    lr_scale.install()

    SGD(model.parameters(), lr=0.1).step()

    lr_scale.close()
    assert faults.count == 1


# Of torch's own parts, as the compiler loads them.
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.slow
def test_a_compiled_step_goes_by_the_scaled_rate_and_leaves_the_schedules() -> None:
    torch.compiler.reset()
    weight = parameter()
    optimizer = SGD([weight], lr=0.5)
    lr_scale = LrScale([optimizer])
    lr_scale.install()
    step = torch.compile(cast("Callable[[], None]", optimizer.step), backend="eager")
    moved: list[float] = []
    for scale in (1.0, 0.5, 0.5, 0.25, 0.25):
        lr_scale.set(scale)
        weight.grad = torch.ones(2)
        before = weight.detach().clone()
        step()
        moved.append((before - weight.detach())[0].item())

    lr_scale.close()
    assert moved == [0.5, 0.25, 0.25, 0.125, 0.125]
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_a_gradient_that_cannot_be_followed_harms_no_backward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = Faults()
    kept = ZeroGrad(faults)
    weight = parameter()
    optimizer = SGD([weight], lr=0.1)
    step = OptimizerStep(optimizer, (0,), has_closure=False)
    for _ in range(SAME_FOR + 4):
        torch.autograd.backward(weight.sum())
        kept.on_gradients(step)
        kept.after_optimizer(step)
        monkeypatch.setattr(kept._witnesses[optimizer], "_note_before", broken)

    assert faults.count == 1
    assert not weight._post_accumulate_grad_hooks


def test_a_hold_that_cannot_be_let_go_does_not_harm_the_end(
    monkeypatch: pytest.MonkeyPatch, line: RecordingLine
) -> None:
    model = nn.Linear(1, 1)
    watch: LiveWatch = watched(model, SGD(model.parameters(), lr=0.1), line=line)
    remove: Callable[[], None] = watch._probe.remove
    monkeypatch.setattr(watch._probe, "remove", broken)
    watch.step(1.0)
    watch.finish()
    remove()

    assert line.closed == [("finished", "")]
    assert watch.num_faults == 1
