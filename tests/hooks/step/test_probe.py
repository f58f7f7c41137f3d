"""What is read of each step, and where."""

import copy
import math
from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
import torch
from tests.hooks.recorder import RecordingLine, of_layer, stat
from tests.hooks.tiny import batch, tiny_gpt, train_one, watched
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.nn.utils import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)

from runwatch.nonfinite import ABSENT_32, is_absent

ABSENT = float(ABSENT_32)


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def length(tensor: Tensor) -> float:
    return tensor.detach().double().square().sum().sqrt().item()


def sgd(model: nn.Module, lr: float = 0.1) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=lr)


def give_gradients(model: nn.Module, value: float = 1.0) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, value)


def test_stats_equal_a_float64_reference(line: RecordingLine) -> None:
    model = tiny_gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    watch = watched(model, optimizer, line=line)
    model(*batch()).backward()
    before = [one.detach().double().clone() for one in model.parameters()]
    grads = [one.grad.double().clone() for one in model.parameters() if one.grad is not None]
    optimizer.step()
    watch.step()
    after = [one.detach().double() for one in model.parameters()]
    row = line.rows[0]

    norms = [length(grad) for grad in grads]
    assert stat(row, "grad_norm").tolist() == pytest.approx(norms, rel=1e-5)
    assert stat(row, "grad_absmax").tolist() == [g.abs().max().item() for g in grads]
    assert stat(row, "param_norm").tolist() == pytest.approx(
        [length(one) for one in before], rel=1e-5
    )
    moved = [
        length(a - b) / length(b) if length(b) else ABSENT
        for a, b in zip(after, before, strict=True)
    ]
    found = stat(row, "update_ratio").tolist()
    assert found == pytest.approx(moved, rel=1e-4, nan_ok=True)
    assert row.metrics["grad_norm"] == pytest.approx(math.hypot(*norms), rel=1e-5)


def test_every_layers_norm_is_read_within_eight_steps(line: RecordingLine) -> None:
    model = tiny_gpt()
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    for _ in range(9):
        watch.step(train_one(model, optimizer))
    read = [~is_absent(stat(row, "param_norm")) for row in line.rows]

    assert read[0].all()
    assert np.sum(read[1:], axis=0).tolist() == [1] * len(read[0])


def test_the_parameters_are_read_before_the_step_that_spoils_them_all(
    line: RecordingLine,
) -> None:
    model = tiny_gpt()
    optimizer = torch.optim.AdamW(model.parameters())
    watch = watched(model, optimizer, line=line)
    for step in range(6):
        if step == 3:
            with torch.no_grad():
                # Behind the attention, whose kernels lose a NaN in some versions of torch.
                model.get_parameter("blocks.1.out.weight")[2, 1] = math.nan
        watch.step(train_one(model, optimizer, max_norm=1.0))
    broken = [np.flatnonzero(np.isnan(stat(row, "grad_norm"))).size for row in line.rows]
    norms = stat(line.rows[3], "param_norm")
    layout = line.rows[3].layout
    assert layout is not None

    assert stat(line.rows[3], "nonfinite").all()
    assert broken == [0] * 6
    assert not is_absent(norms).any()
    assert np.flatnonzero(~np.isfinite(norms)).tolist() == [
        layout.layer_names.index("blocks.1.out.weight")
    ]
    assert is_absent(stat(line.rows[4], "param_norm")).any()


@pytest.mark.parametrize("skips", [False, True])
def test_gradients_that_break_among_sound_parameters_show_them_sound(
    skips: bool, line: RecordingLine
) -> None:
    model = linear()
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    for step in range(4):
        give_gradients(model, math.inf if step == 2 else 1.0)
        clip_grad_norm_(model.parameters(), 1.0)
        if not (skips and step == 2):
            optimizer.step()
        watch.step(1.0)

    assert np.isfinite(stat(line.rows[2], "param_norm")).all()


def test_a_closures_parameters_are_read_before_it_runs(line: RecordingLine) -> None:
    model = linear()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    watch = watched(model, optimizer, line=line)

    def closure() -> float:
        give_gradients(model, math.nan)
        return math.nan

    take_step = cast("Callable[[Callable[[], float]], float]", optimizer.step)
    take_step(closure)
    watch.step(math.nan)

    assert np.isfinite(stat(line.rows[0], "param_norm")).all()


def test_gradients_are_read_before_a_clip_that_was_imported_by_name(line: RecordingLine) -> None:
    model = linear()
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    give_gradients(model, 2.0)
    clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    watch.step()
    metrics = line.rows[0].metrics

    assert stat(line.rows[0], "grad_absmax").tolist() == [2.0, 2.0]
    assert metrics["grad_norm"] == pytest.approx(2.0 * math.sqrt(15))
    assert metrics["clip_coef"] == pytest.approx(1.0 / (2.0 * math.sqrt(15)), rel=1e-5)
    assert metrics["clipped"] == 1.0
    assert line.events[0].detail == {"stage": "preclip"}


def test_layers_without_a_gradient_that_a_clip_leaves_out_do_not_count_as_read_after_it(
    line: RecordingLine,
) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    for is_frozen in (False, True):
        model[0].requires_grad_(not is_frozen)
        model(torch.ones(5, 4)).sum().backward()
        clip_grad_norm_([one for one in model.parameters() if one.requires_grad], 1.0)
        optimizer.step()
        optimizer.zero_grad()
        watch.step()

    stages = [event.detail for event in line.events if event.kind == "grad_stage"]
    assert stages == [{"stage": "preclip"}]


def test_a_clip_that_was_not_needed_is_none(line: RecordingLine) -> None:
    model = linear()
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    give_gradients(model, 0.1)
    clip_grad_norm_(model.parameters(), 100.0)
    optimizer.step()
    watch.step()

    assert (line.rows[0].metrics["clip_coef"], line.rows[0].metrics["clipped"]) == (1.0, 0.0)


@pytest.mark.parametrize(("of_weight", "of_bias"), [(math.nan, 2.0), (2.0, math.nan)])
def test_of_several_clips_one_by_a_nan_is_told(
    of_weight: float, of_bias: float, line: RecordingLine
) -> None:
    model = linear()
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    for parameter, value in ((model.weight, of_weight), (model.bias, of_bias)):
        parameter.grad = torch.full_like(parameter, value)
        clip_grad_norm_([parameter], 1.0)
    optimizer.step()
    watch.step()
    metrics = line.rows[0].metrics

    assert math.isnan(metrics["clip_coef"])
    assert metrics["clipped"] == 1.0


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_the_culprit_is_named_though_the_clip_spoils_every_gradient(
    norm: float, line: RecordingLine
) -> None:
    model = linear()
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    give_gradients(model)
    assert model.bias.grad is not None
    model.bias.grad[1] = norm
    clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    watch.step()
    row = line.rows[0]

    assert of_layer(row, "nonfinite", "weight") == 0
    assert of_layer(row, "nonfinite", "bias") == 1
    assert of_layer(row, "grad_norm", "bias") == pytest.approx(math.sqrt(2))
    assert math.isnan(row.metrics["grad_norm"])
    assert row.metrics["clipped"] == 1.0
    assert row.urgent


def test_the_public_names_of_clipping_are_seen_too(line: RecordingLine) -> None:
    model = linear()
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    give_gradients(model, 2.0)
    total = nn.utils.get_total_norm(
        [one.grad for one in model.parameters() if one.grad is not None]
    )
    nn.utils.clip_grads_with_norm_(iter(model.parameters()), 1.0, total)
    optimizer.step()
    watch.step()

    assert stat(line.rows[0], "grad_absmax").tolist() == [2.0, 2.0]
    assert line.rows[0].metrics["clipped"] == 1.0


def test_gradients_are_read_before_a_clip_by_value(line: RecordingLine) -> None:
    model = linear()
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    give_gradients(model, 2.0)
    nn.utils.clip_grad_value_(model.parameters(), 0.5)
    optimizer.step()
    watch.step()

    assert stat(line.rows[0], "grad_absmax").tolist() == [2.0, 2.0]


def clip_by_value(model: nn.Module) -> None:
    clip_grad_value_(model.parameters(), 0.5)


def clip_by_total_norm(model: nn.Module) -> None:
    gradients = [one.grad for one in model.parameters() if one.grad is not None]
    clip_grads_with_norm_(model.parameters(), 0.5, get_total_norm(gradients))


@pytest.mark.parametrize("clip", [clip_by_value, clip_by_total_norm])
def test_gradients_are_read_before_any_clip_that_was_imported_by_name(
    clip: Callable[[nn.Module], None], line: RecordingLine
) -> None:
    model = linear()
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    for value in (2.0, 3.0):  # of two micro-batches
        give_gradients(model, value)
        clip(model)
    optimizer.step()
    watch.step()

    assert stat(line.rows[0], "grad_absmax").tolist() == [3.0, 3.0]


def test_a_norm_that_was_imported_by_name_leaves_them_to_be_read_at_the_step(
    line: RecordingLine,
) -> None:
    model = linear()
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    give_gradients(model, 2.0)
    get_total_norm([one.grad for one in model.parameters() if one.grad is not None])
    give_gradients(model, 3.0)
    optimizer.step()
    watch.step()

    assert stat(line.rows[0], "grad_absmax").tolist() == [3.0, 3.0]


def test_of_two_clips_of_the_same_gradients_the_last_reading_counts(line: RecordingLine) -> None:
    model = linear()
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    for value in (2.0, 3.0):
        give_gradients(model, value)
        clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    watch.step()

    assert stat(line.rows[0], "grad_absmax").tolist() == [3.0, 3.0]


def test_a_clip_of_some_leaves_the_others_to_be_read_at_the_step(line: RecordingLine) -> None:
    model = linear()
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    give_gradients(model, 2.0)
    clip_grad_norm_([model.bias], 0.1)
    optimizer.step()
    watch.step()

    assert stat(line.rows[0], "grad_absmax").tolist() == [2.0, 2.0]


def test_without_a_clip_gradients_are_read_as_the_optimizer_gets_them(line: RecordingLine) -> None:
    model = linear()
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    give_gradients(model, 3.0)
    optimizer.step()
    watch.step()

    assert stat(line.rows[0], "grad_absmax").tolist() == [3.0, 3.0]
    assert "clip_coef" not in line.rows[0].metrics
    assert line.events[0].detail == {"stage": "prestep"}


def scaled_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, fault: float
) -> None:
    optimizer.zero_grad()
    scale = scaler.scale(torch.ones(()))
    give_gradients(model, 2.0 * scale.item())
    bias = list(model.parameters())[1]
    assert bias.grad is not None
    bias.grad[0] += fault
    scaler.step(optimizer)
    scaler.update()


@pytest.mark.parametrize("fused", [False, True])
def test_a_skipped_step_makes_a_row_that_names_the_layer(fused: bool, line: RecordingLine) -> None:
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    watch = watched(model, optimizer, line=line)
    for fault in (0.0, math.inf, 0.0):
        scaled_step(model, optimizer, scaler, fault)
        watch.step(torch.ones(()))
    fine, skipped, after = line.rows

    assert [row.step for row in line.rows] == [0, 1, 2]
    assert line.metric("skipped") == [0.0, 1.0, 0.0]
    assert line.metric("loss_scale") == [1024.0, 1024.0, 512.0]
    assert line.metric("lr") == [0.1, 0.1, 0.1]
    assert of_layer(skipped, "nonfinite", "bias") == 1
    assert of_layer(skipped, "nonfinite", "weight") == 0
    for row in (fine, after):
        assert stat(row, "grad_absmax").tolist() == [2.0, 2.0]
    assert watch.num_faults == 0


def test_a_skipped_step_moves_nothing(line: RecordingLine) -> None:
    model = linear()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu")
    watch = watched(model, optimizer, line=line)
    scaled_step(model, optimizer, scaler, math.inf)
    watch.step()

    assert is_absent(stat(line.rows[0], "update_ratio")).all()


def test_accumulated_gradients_make_one_row_a_step(line: RecordingLine) -> None:
    model = tiny_gpt()
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    for _ in range(4):
        model(*batch()).backward()
    wanted = [length(one.grad) for one in model.parameters() if one.grad is not None]
    optimizer.step()
    watch.step()

    assert stat(line.rows[0], "grad_norm").tolist() == pytest.approx(wanted, rel=1e-5)


def test_a_layer_without_a_gradient_is_absent_and_not_zero(line: RecordingLine) -> None:
    model = linear()
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    give_gradients(model)
    model.bias.grad = None
    optimizer.step()
    watch.step()

    assert is_absent(stat(line.rows[0], "grad_norm")).tolist() == [False, True]
    assert is_absent(stat(line.rows[0], "zero_frac")).tolist() == [False, True]


def test_a_layer_that_is_unfrozen_appears_in_a_new_layout(line: RecordingLine) -> None:
    model = linear()
    model.bias.requires_grad_(False)
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    for _ in range(2):
        give_gradients(model)
        optimizer.step()
        watch.step()
        model.bias.requires_grad_(True)
    layouts = [row.layout for row in line.rows]

    assert [one.layer_names for one in layouts if one is not None] == [
        ("weight",),
        ("weight", "bias"),
    ]


def test_lbfgs_is_read_after_its_closure_ran(line: RecordingLine) -> None:
    model = linear()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    watch = watched(model, optimizer, line=line)
    target = torch.randn(8, 4), torch.randn(8, 3)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(target[0]), target[1])
        torch.autograd.backward(loss)
        return loss

    take_step = cast("Callable[[Callable[[], Tensor]], Tensor]", optimizer.step)
    take_step(closure)
    norms = [length(one.grad) for one in model.parameters() if one.grad is not None]
    watch.step()

    assert stat(line.rows[0], "grad_norm").tolist() == pytest.approx(norms, rel=1e-5)
    assert (stat(line.rows[0], "update_ratio") > 0).all()
    assert line.events[0].detail == {"stage": "closure_post"}


def test_two_optimizers_fill_one_row(line: RecordingLine) -> None:
    model = nn.ModuleDict({"generator": linear(), "critic": linear()})
    optimizers = sgd(model["generator"], 0.1), sgd(model["critic"], 0.2)
    watch = watched(model, *optimizers, line=line)
    give_gradients(model)
    for optimizer in optimizers:
        optimizer.step()
    watch.step()
    row = line.rows[0]

    assert not is_absent(stat(row, "grad_norm")).any()
    assert (stat(row, "update_ratio") > 0).all()
    assert (row.metrics["lr"], row.metrics["lr.1"]) == (0.1, 0.2)


def test_every_groups_lr_is_read_as_it_was_used(line: RecordingLine) -> None:
    model = linear()
    optimizer = torch.optim.SGD(
        [{"params": [model.weight], "lr": 1.0}, {"params": [model.bias], "lr": torch.tensor(0.5)}]
    )
    watch = watched(model, optimizer, line=line)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)  # after the hook
    for _ in range(2):
        give_gradients(model)
        optimizer.step()
        scheduler.step()
        watch.step()

    assert line.metric("lr") == [1.0, 0.5]
    assert line.metric("lr.1") == [0.5, 0.25]


def test_a_group_that_is_added_moves_the_rates_of_later_optimizers(line: RecordingLine) -> None:
    model = linear()
    first, second = (torch.optim.SGD([one], lr=0.5) for one in (model.weight, model.bias))
    watch = watched(model, first, second, line=line)
    for step in range(2):
        if step == 1:
            first.add_param_group({"params": [nn.Parameter(torch.ones(1))], "lr": 0.25})
        give_gradients(model)
        first.step()
        second.step()
        watch.step()

    assert line.metric("lr.1") == [0.5, 0.25]
    assert line.metric("lr.2") == [0.5]


class Doubled(torch.optim.SGD):
    """Its step is that of its parent, called within its own: torch's hooks fire twice."""

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        return cast("float | None", super().step(closure))


def test_a_step_within_a_step_is_one_step(line: RecordingLine) -> None:
    model = linear()
    torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = Doubled(model.parameters(), lr=0.1)
    watch = watched(model, optimizer, line=line)
    give_gradients(model)
    size = math.sqrt(12) * 0.1 / length(model.weight)
    optimizer.step()
    watch.step()

    assert of_layer(line.rows[0], "update_ratio", "weight") == pytest.approx(size, rel=1e-4)


class Stumbling(torch.optim.SGD):
    """Raises in its first step."""

    stumbled = False

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        if not self.stumbled:
            self.stumbled = True
            raise RuntimeError("out of memory")
        return cast("float | None", super().step(closure))


def test_a_step_that_raised_leaves_the_next_one_whole(line: RecordingLine) -> None:
    model = linear()
    torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = Stumbling(model.parameters(), lr=0.1)
    watch = watched(model, optimizer, line=line)
    give_gradients(model)
    with pytest.raises(RuntimeError, match="out of memory"):
        optimizer.step()
    watch.step()
    optimizer.step()
    watch.step()

    assert is_absent(stat(line.rows[0], "update_ratio")).all()
    assert (stat(line.rows[1], "update_ratio") > 0).all()


class Assigning(torch.optim.SGD):
    """Puts other tensors in the place of the weights."""

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            parameter.data = parameter.data - 0.5
        return None


def test_a_step_that_assigns_weights_moves_them(line: RecordingLine) -> None:
    model = linear()
    optimizer = Assigning(model.parameters(), lr=0.1)
    watch = watched(model, optimizer, line=line)
    ratio = math.sqrt(12) * 0.5 / length(model.weight)
    for _ in range(2):
        give_gradients(model)
        optimizer.step()
        watch.step()

    assert of_layer(line.rows[0], "update_ratio", "weight") == pytest.approx(ratio, rel=1e-4)
    assert not is_absent(stat(line.rows[1], "update_ratio")).any()


def test_a_deep_copy_is_somebody_elses(line: RecordingLine) -> None:
    model = linear()
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    other_model, other = copy.deepcopy((model, optimizer))
    give_gradients(other_model, 9.0)
    clip_grad_norm_(other_model.parameters(), 1.0)
    other.step()
    give_gradients(model)
    optimizer.step()
    watch.step()

    assert stat(line.rows[0], "grad_absmax").tolist() == [1.0, 1.0]
    assert "clip_coef" not in line.rows[0].metrics
    assert watch.num_faults == 0


def test_an_optimizer_made_anew_for_the_same_parameters_is_ours(line: RecordingLine) -> None:
    model = linear()
    watch = watched(model, sgd(model), line=line)
    give_gradients(model)
    sgd(model, lr=0.5).step()
    watch.step()

    assert stat(line.rows[0], "grad_absmax").tolist() == [1.0, 1.0]
    assert line.rows[0].metrics["lr"] == 0.5
    (told,) = [event for event in line.events if event.kind == "watch_changed"]
    assert "(SGD) steps the run's parameters" in str(told.detail)
    assert "unwatched" not in line.kinds()


@pytest.mark.parametrize("remade", [False, True])
def test_a_parameter_that_was_replaced_is_said_and_followed(
    remade: bool, line: RecordingLine
) -> None:
    model = linear()
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    for step in range(40):
        if step == 3:
            model.weight = nn.Parameter(model.weight.detach().clone())
            optimizer = sgd(model) if remade else optimizer
        give_gradients(model, float(step))
        optimizer.step()
        watch.step()
    (told,) = [event for event in line.events if "replaced" in str(event.detail)]

    assert str(told.detail["what"]).endswith(" weight")
    assert (told.step, told.kind) == ((4, "watch_changed") if remade else (31, "unwatched"))
    assert ("no known optimizer holds" in str(told.detail)) is not remade
    assert (of_layer(line.rows[-1], "grad_norm", "weight") > 0) is remade
    assert watch.num_faults == 0


def test_a_model_that_grows_with_a_new_optimizer_is_watched_and_no_alarm(
    line: RecordingLine,
) -> None:
    model = nn.Sequential(linear())
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    for step in range(8):
        if step == 3:
            model.append(linear())
            optimizer = sgd(model)
        give_gradients(model)
        optimizer.step()
        watch.step()

    told = [event.step for event in line.events if event.kind == "watch_changed"]
    assert told == [3, 4]  # the optimizer, and then the layers that it brought
    assert "unwatched" not in line.kinds()
    assert of_layer(line.rows[-1], "grad_norm", "1.weight") > 0


class Wrapper(torch.optim.Optimizer):
    """Hands its steps on, as Accelerate's does."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        self.param_groups = inner.param_groups
        self.state = inner.state
        self.defaults = inner.defaults

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        self.inner.step()


def test_an_optimizer_behind_a_wrapper_is_the_one_that_was_given(line: RecordingLine) -> None:
    model = linear()
    wrapper = Wrapper(sgd(model, lr=0.25))
    watch = watched(model, wrapper, line=line)
    give_gradients(model)
    wrapper.step()
    watch.step()

    assert line.rows[0].metrics["lr"] == 0.25
    assert "unwatched" not in line.kinds()


def test_a_step_that_only_makes_the_optimizers_state_is_no_step(line: RecordingLine) -> None:
    model = linear()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    watch = watched(model, optimizer, line=line)
    get_optimizer_state_dict(model, optimizer)
    assert optimizer.state
    give_gradients(model)
    optimizer.step()
    watch.step()

    assert stat(line.rows[0], "grad_absmax").tolist() == [1.0, 1.0]
    assert line.metric("lr") == [pytest.approx(0.1)]
    assert line.metric("optimizer_steps") == [1.0]


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("has_state", [False, True])
def test_the_first_step_of_a_warm_up_from_0_is_whole(
    value: float, has_state: bool, line: RecordingLine
) -> None:
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9 if has_state else 0.0)
    watch = watched(model, optimizer, line=line)
    for rate in (0.0, 0.1):
        optimizer.param_groups[0]["lr"] = rate
        give_gradients(model, value)
        optimizer.step()
        watch.step()

    assert line.metric("lr") == [0.0, 0.1]
    assert line.metric("optimizer_steps") == [1.0, 1.0]
    for row in line.rows:
        assert stat(row, "grad_absmax").tolist() == [value, value]


def test_so_is_that_of_one_that_evaluates_a_closure(line: RecordingLine) -> None:
    model = linear()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.0)
    watch = watched(model, optimizer, line=line)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(torch.ones(1, 4)).sum()
        torch.autograd.backward(loss)
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    watch.step()

    assert line.metric("lr") == [0.0]
    assert line.rows[0].stats is not None


def test_a_boundary_without_a_step_makes_a_row_without_stats(line: RecordingLine) -> None:
    model = linear()
    watch = watched(model, sgd(model), line=line)
    watch.step(1.0)

    assert line.rows[0].stats is None
    assert line.rows[0].metrics["loss"] == 1.0


# Of torch's own parts, as the compiler loads them.
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.slow
def test_steps_of_a_compiled_optimizer_are_seen(line: RecordingLine) -> None:
    model = linear()
    optimizer = sgd(model)
    watch = watched(model, optimizer, line=line)
    step = torch.compile(cast("Callable[[], None]", optimizer.step), backend="eager")
    for _ in range(12):
        give_gradients(model)
        step()
        watch.step()

    assert all(row.stats is not None for row in line.rows)
    assert watch.num_faults == 0
