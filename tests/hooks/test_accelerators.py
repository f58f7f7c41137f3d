"""A whole training under a watch, on a CPU and, where there is one, on an accelerator: what is told
of it is what plain arithmetic says, and there nothing of ours waits for the device meanwhile."""

import importlib.util
import math
from typing import Any, Final, cast

import pytest
import torch
from tests.hooks.cards import needs_card, needs_two
from tests.hooks.placed import (
    CUDA,
    ROWS,
    WIDTH,
    Halves,
    Trial,
    check_layers,
    check_rows,
    fused,
    gradient_of,
    no_waiting,
    plainly,
    settle,
)
from tests.hooks.recorder import RecordingLine, of_layer
from tests.hooks.tiny import watched
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD

from runwatch.commands import Command, Rollback
from runwatch.vocabulary import CommandId
from runwatch_hooks.faults import Faults
from runwatch_hooks.settings.options import Options
from runwatch_hooks.statistics.gpu import DeviceStatistics
from runwatch_hooks.statistics.gpu_reading import GradientsOnDevice
from runwatch_hooks.step import model as model_statistics

CPU: Final = torch.device("cpu")

AS_ELSEWHERE: Final = "cpu, read as an accelerator is"
DEVICES: Final = (
    pytest.param("cpu", id="cpu"),
    pytest.param(AS_ELSEWHERE, id=AS_ELSEWHERE),
    pytest.param("cuda", id="cuda", marks=needs_card),
)
HALVES: Final = (
    pytest.param(("cpu", "cpu"), id="cpu"),
    pytest.param(("cpu", "cuda"), id="cpu and cuda", marks=needs_card),
    pytest.param(("cuda:0", "cuda:1"), id="two cards", marks=needs_two),
    pytest.param(("cuda:1", "cuda:1"), id="the second card", marks=needs_two),
)
EVERYTHING: Final = Options(
    allow=("checkpoint", "lower_lr", "rollback", "stop"),
    snapshot_every=1,
    snapshots=6,
    good_after=1,
    histograms=2,
    activations=3,
)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a model lies."""
    if request.param != AS_ELSEWHERE:
        return str(request.param)
    faults = Faults()

    def statistics(tensors: Any, turns: Any, *, are_parts: bool) -> DeviceStatistics:
        reader = GradientsOnDevice(CPU, faults)
        return DeviceStatistics(tensors, CPU, reader, turns, are_parts=are_parts)

    monkeypatch.setattr(model_statistics, "CpuStatistics", statistics)
    return "cpu"


def test_rows_are_what_plain_arithmetic_says_and_nothing_waited(
    device: str, line: RecordingLine
) -> None:
    trial = Trial(line, device, options=EVERYTHING)
    watch = trial.attach()
    trial.step(0)  # the kernel is compiled, and the allocators take their memory
    with no_waiting(trial.device):
        for step in range(1, 10):
            trial.step(step, max_norm=0.01 if step == 4 else None)
    watch.finish()

    check_rows(trial, line)
    assert line.metric("clipped") == [1.0]
    assert line.metric("layers_with_grad") == [4.0] * 10
    assert len([row for row in line.rows if row.histograms]) >= 5
    assert watch.num_faults == 0


@pytest.mark.parametrize("is_cleared", [True, False])
def test_gradients_that_nobody_cleared_are_told_and_nothing_waited(
    device: str, is_cleared: bool, line: RecordingLine
) -> None:
    model = nn.Linear(WIDTH, WIDTH).to(device)
    optimizer = SGD(model.parameters(), lr=1e-3)
    watch = watched(model, optimizer, line=line)
    batch = torch.ones(ROWS, WIDTH).to(device)
    for _ in range(40):
        with no_waiting(batch.device):
            torch.autograd.backward(model(batch).square().mean())
            optimizer.step()
            watch.step()
            if is_cleared:
                for one in model.parameters():
                    gradient_of(one).data.zero_()
        settle(device)
    watch.finish()

    assert line.metric("kept_gradients")[-1:] == ([] if is_cleared else [1.0])
    assert watch.num_faults == 0


@pytest.mark.parametrize("halves", HALVES)
def test_layers_of_several_devices_stand_in_one_row(
    halves: tuple[str, str], line: RecordingLine
) -> None:
    trial = Trial(line, *halves, options=EVERYTHING)
    watch = trial.attach()
    for step in range(6):
        trial.step(step)
    watch.finish()

    check_rows(trial, line)
    assert watch.num_faults == 0


@pytest.mark.parametrize("halves", HALVES)
def test_weights_kept_elsewhere_while_gradients_are_clipped_are_taken_for_no_others(
    halves: tuple[str, str], line: RecordingLine
) -> None:
    trial = Trial(line, *halves, options=Options())
    watch = trial.attach()
    weights = {"first.weight": trial.model.first.weight, "second.weight": trial.model.second.weight}
    norms: list[dict[str, float]] = []
    for index in range(4):
        trial.optimizer.zero_grad()
        loss: Tensor = trial.model(trial.batches[index])
        torch.autograd.backward(loss)
        norms.append(
            {
                name: float(plainly(gradient_of(one), one)["grad_norm"])
                for name, one in weights.items()
            }
        )
        kept = [one.data for one in weights.values()]
        for one, device in zip(weights.values(), reversed(halves), strict=True):
            one.data = one.data.to(device)
        clip_grad_norm_(trial.model.parameters(), math.inf)
        for one, data in zip(weights.values(), kept, strict=True):
            one.data = data
        trial.optimizer.step()
        watch.step(loss)
    watch.finish()

    rows = [row for row in line.rows if "loss" in row.metrics]
    found = [{name: of_layer(row, "grad_norm", name) for name in weights} for row in rows]
    assert found == [pytest.approx(expected, rel=1e-5) for expected in norms]
    assert watch.num_faults == 0


def test_what_is_not_finite_is_told_of_its_layer_at_its_step(
    device: str, line: RecordingLine
) -> None:
    trial = Trial(line, device, options=EVERYTHING, make=lambda p: SGD(p, lr=1e-3))
    watch = trial.attach()
    for step in range(4):
        trial.step(step, math.inf if step == 3 else None)
    watch.finish()
    broken = next(row for row in line.rows if row.step == 3 and "loss" in row.metrics)
    bad = {
        layer: of_layer(broken, "nonfinite", layer)
        for layer in ("first.weight", "first.bias", "second.weight", "second.bias")
    }

    check_rows(trial, line, but=3)
    assert bad == {"first.weight": 0.0, "first.bias": 0.0, "second.weight": 1.0, "second.bias": 0.0}
    assert not math.isfinite(broken.metrics["grad_norm"])


def test_a_loss_scaler_is_taken_out_and_its_skipped_step_is_told(
    device: str, line: RecordingLine
) -> None:
    trial = Trial(line, device, options=EVERYTHING, make=fused)
    trial.scaler = torch.amp.GradScaler(trial.device.type, init_scale=1024.0)
    watch = trial.attach()
    trial.step(0)
    with no_waiting(trial.device):
        for step in range(1, 6):
            trial.step(step, math.nan if step == 3 else None)
    watch.finish()

    check_rows(trial, line, but=3)
    assert line.metric("skipped") == [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    assert line.metric("loss_scale") == [1024.0] * 4 + [512.0] * 2
    assert watch.num_faults == 0


@pytest.mark.parametrize("guard", [True, "outliers"])
def test_a_guarded_step_changes_nothing_and_nobody_waits(
    device: str, guard: Any, line: RecordingLine
) -> None:
    trial = Trial(line, device, options=Options(guard=guard), make=fused)
    watch = trial.attach()
    trial.step(0)
    with no_waiting(trial.device):
        trial.step(1)
        before = trial.parameters()
        trial.step(2, math.nan)
        after = trial.parameters()
        trial.step(3)
    watch.finish()

    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert all(bool(one.isfinite().all()) for one in trial.parameters())
    assert line.metric("guarded_steps") == [0.0, 0.0, 1.0, 0.0]
    assert line.kinds().count("guarded") == 1
    assert watch.num_faults == 0


@pytest.mark.parametrize("halves", HALVES)
def test_a_rollback_puts_back_every_bit_and_the_steps_are_trained_again(
    halves: tuple[str, str], line: RecordingLine
) -> None:
    trial = Trial(line, *halves, options=EVERYTHING)
    watch = trial.attach()
    states: list[list[Tensor]] = []
    for step in range(5):
        if step == 4:
            settle(*halves)  # the state to go back to has arrived
            action = Rollback(to_step=1)
            line.commands = [Command(CommandId("c1"), action, attempt=1, expires_at=math.inf)]
        trial.step(step)
        states.append(trial.parameters())
    for step in range(2, 5):
        trial.step(step)
    watch.finish()

    assert all(map(torch.equal, states[4], states[1]))
    assert [float(one) for one in trial.losses[5:]] == [float(one) for one in trial.losses[2:5]]
    assert watch.num_faults == 0


def test_a_training_is_the_same_to_the_bit_with_the_watch(device: str, line: RecordingLine) -> None:
    trials = [Trial(line, device, options=EVERYTHING), Trial(None, device, options=EVERYTHING)]
    watch = trials[0].attach()
    for step in range(8):
        trials[0].step(step)
    watch.finish()
    for step in range(8):
        trials[1].step(step)

    assert all(map(torch.equal, trials[0].parameters(), trials[1].parameters()))


def test_optimizers_in_the_backward_pass_are_seen_in_whatever_thread_that_runs(
    device: str, line: RecordingLine
) -> None:
    model = Halves(device, device)
    optimizers = {one: SGD([one], lr=1e-2) for one in model.parameters()}
    watch = watched(model, *optimizers.values(), line=line)

    def step(parameter: Tensor) -> None:
        optimizers[cast(nn.Parameter, parameter)].step()
        optimizers[cast(nn.Parameter, parameter)].zero_grad()

    for one in model.parameters():
        cast(Any, one).register_post_accumulate_grad_hook(step)
    for _ in range(3):
        loss = model(torch.randn(ROWS, WIDTH).to(model.first.weight.device))
        torch.autograd.backward(loss)
        watch.step(loss)
    watch.finish()

    assert line.metric("layers_with_grad") == [4.0] * 3
    assert line.metric("optimizer_steps") == [4.0] * 3
    assert watch.num_faults == 0


@needs_card
def test_a_training_in_a_stream_of_its_own_is_read_in_order(line: RecordingLine) -> None:
    trial = Trial(line, "cuda", options=EVERYTHING)
    watch = trial.attach()
    trial.watch = None
    stream = CUDA.Stream()
    stream.wait_stream(CUDA.current_stream())
    for step in range(5):
        with CUDA.stream(stream):
            CUDA._sleep(20_000_000)
            trial.step(step)
        loss = trial.losses[-1]
        loss.record_stream(CUDA.current_stream())
        with no_waiting(trial.device):
            watch.step()
    watch.finish()
    settle("cuda")
    rows = [row for row in line.rows if "grad_norm" in row.metrics]

    norms: dict[str, float] = {}
    for row, plain in zip(rows, trial.expected, strict=True):
        check_layers(row, plain, norms)


@needs_card
def test_gradients_are_read_by_the_kernel_where_triton_is(line: RecordingLine) -> None:
    trial = Trial(line, "cuda", options=Options())
    watch = trial.attach()
    for step in range(3):
        trial.step(step)
    watch.finish()
    has_triton = importlib.util.find_spec("triton") is not None

    assert has_triton
    assert watch.num_faults == 0  # a kernel that could not be launched would be one


@needs_card
def test_gradients_that_lie_elsewhere_than_their_weights_are_left_alone(
    line: RecordingLine,
) -> None:
    trial = Trial(line, "cuda", options=Options())
    watch = trial.attach()
    trial.step(0)
    loss: Tensor = trial.model(trial.batches[1])
    torch.autograd.backward(loss)
    weight = trial.model.first.weight
    kept, weight.data = weight.data, weight.data.cpu()
    clip_grad_norm_(trial.model.parameters(), 1.0)
    weight.data = kept
    trial.optimizer.step()
    watch.step(loss)
    watch.finish()

    assert watch.num_faults == 0
