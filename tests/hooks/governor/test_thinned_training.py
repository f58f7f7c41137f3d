"""Real trainings under a budget that nothing keeps: what is still read, and what always is."""

import math

import pytest
import torch
from tests.hooks.recorder import RecordingLine, stat
from tests.hooks.tiny import TEAM, watched
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from runwatch.nonfinite import is_absent
from runwatch_hooks.attaching.wiring import Objects, build_watch
from runwatch_hooks.errors import AttachError
from runwatch_hooks.governor.ladder import LADDER
from runwatch_hooks.observers.mistakes.no_gradients import BLIND_AFTER
from runwatch_hooks.run import LiveWatch
from runwatch_hooks.settings.options import Options
from runwatch_hooks.step.row import Row

THIN = Options(max_overhead=1e-9)
CLIMB = 32 * len(LADDER)
"""Steps after which it stands on the last rung, of which every 64th is read."""
LAST = LADDER[-1].gradients_every


class Training:
    """A linear model, a step at a time."""

    def __init__(self, line: RecordingLine, options: Options, *, clips: bool = False) -> None:
        torch.manual_seed(0)
        self.line = line
        self.model = nn.Linear(6, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.clips = clips
        self.watch: LiveWatch = watched(self.model, self.optimizer, line=line, options=options)
        self.losses: list[float] = []

    def step(self, factor: float = 1.0) -> Row:
        self.optimizer.zero_grad()
        loss: Tensor = self.model(torch.randn(8, 6)).square().mean()
        torch.autograd.backward(loss)
        if factor != 1.0:
            assert self.model.bias.grad is not None
            self.model.bias.grad[1] *= factor
        if self.clips:
            clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.losses.append(loss.item())
        self.watch.step(loss)
        return self.line.rows[-1]

    def run(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.step()

    def go_to_a_step_that_is_left_out(self) -> None:
        """The next one is: it comes after one that was read, on the last rung."""
        self.run(CLIMB)
        while not is_read(self.step()):
            pass


def is_read(row: Row) -> bool:
    """Whether the row holds gradients."""
    return bool((~is_absent(stat(row, "grad_norm"))).any())


def test_what_is_left_out_is_not_recorded_and_the_rest_is_as_ever(line: RecordingLine) -> None:
    training = Training(line, THIN)
    training.run(CLIMB + LAST)
    thinned = [row for row in line.rows if not is_read(row)]
    of_gradients = {"grad_norm", "nonfinite", "layers_with_grad", "param_norm"}

    assert len(thinned) > LAST
    for row in thinned:
        assert row.stats is not None
        assert is_absent(row.stats).all()
        assert of_gradients.isdisjoint(row.metrics)
        assert {"loss", "lr", "optimizer_steps"} <= row.metrics.keys()
    read = line.rows[-LAST:]
    assert sum(map(is_read, read)) == 1
    assert all(of_gradients <= row.metrics.keys() for row in read if is_read(row))


def test_training_and_the_numbers_that_are_read_stay_the_same_to_the_bit() -> None:
    whole, thin = RecordingLine(), RecordingLine()
    losses = []
    for line, options in ((whole, Options()), (thin, THIN)):
        training = Training(line, options)
        training.run(CLIMB)
        losses.append(training.losses)

    assert losses[0] == losses[1]
    for left, right in zip(whole.rows, thin.rows, strict=True):
        assert right.metrics["loss"] == left.metrics["loss"]
        if is_read(right):
            for name in ("grad_norm", "grad_absmax", "nonfinite", "zero_frac"):
                assert (stat(left, name) == stat(right, name)).all()


def test_rows_and_events_tell_how_often_is_read(line: RecordingLine) -> None:
    Training(line, THIN).run(CLIMB)
    events = [event for event in line.events if event.kind == "sampling"]
    rungs = [(one.detail["sampling_interval"], one.detail["weights_interval"]) for one in events]

    assert rungs == [(one.gradients_every, one.weights_every) for one in LADDER[1:]]
    assert {type(one.detail["hook_share"]) for one in events} == {float}
    begins = [event.step + 1 for event in events]
    for rung, begin, end in zip(LADDER[1:], begins, (*begins[1:], CLIMB), strict=True):
        rows = line.rows[begin:end]
        every = rung.gradients_every
        assert {row.metrics["sampling_interval"] for row in rows} == {every}
        assert [row.step for row in rows if is_read(row)] == list(range(begin, end))[::every]


def test_weights_are_left_out_before_any_gradient_is(line: RecordingLine) -> None:
    Training(line, THIN).run(CLIMB)
    second, third = [event.step + 1 for event in line.events if event.kind == "sampling"][:2]
    rows = line.rows[second:third]
    moved = [row for row in rows if not is_absent(stat(row, "update_ratio")).all()]

    assert all(map(is_read, rows))
    assert [row.step for row in moved] == [row.step for row in rows][::8]
    assert [row.step for row in rows if "param_norm" in row.metrics] == [row.step for row in moved]


def test_without_a_budget_or_within_it_everything_is_read(line: RecordingLine) -> None:
    Training(line, Options(max_overhead=0.999999)).run(CLIMB)

    assert all(map(is_read, line.rows))
    assert "sampling" not in line.kinds()
    assert 0.0 < line.metric("hook_share")[-1] < 1.0
    unasked = RecordingLine()
    Training(unasked, Options()).run(100)
    assert unasked.metric("hook_share") == unasked.metric("sampling_interval") == []


def test_a_layer_that_comes_while_nothing_is_read_is_met_at_the_next_reading(
    line: RecordingLine,
) -> None:
    training = Training(line, THIN)
    training.go_to_a_step_that_is_left_out()
    training.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
    training.run(LAST)

    layouts = [row.layout for row in line.rows[-LAST:]]
    num_layers = [len(one.layers) for one in layouts if one is not None]
    assert num_layers == [2] * (LAST - 1) + [3]
    assert is_read(line.rows[-1])


def test_a_gradient_that_breaks_where_nothing_is_read_is_named_if_a_clip_meets_it(
    line: RecordingLine,
) -> None:
    training = Training(line, THIN, clips=True)
    training.go_to_a_step_that_is_left_out()
    broken = training.step(factor=math.nan)

    assert broken.metrics["nonfinite"] == 1.0
    assert stat(broken, "nonfinite").tolist() == [0.0, 1.0]
    assert not is_absent(stat(broken, "param_norm")).any()


def test_from_a_loss_that_is_not_finite_on_every_step_is_read(line: RecordingLine) -> None:
    training = Training(line, THIN)
    training.go_to_a_step_that_is_left_out()
    unseen = training.step(factor=math.inf)
    told = training.step()
    after = [training.step() for _ in range(5)]

    assert not is_read(unseen)
    assert not math.isfinite(told.metrics["loss"])
    assert all(map(is_read, after))
    assert all(row.metrics["nonfinite"] > 0 for row in after)


def test_once_all_is_well_again_less_is_read_again(line: RecordingLine) -> None:
    training = Training(line, THIN, clips=True)
    training.go_to_a_step_that_is_left_out()
    with torch.no_grad():
        before = [one.clone() for one in training.model.parameters()]
    training.step(factor=math.nan)
    with torch.no_grad():
        for one, old in zip(training.model.parameters(), before, strict=True):
            one.copy_(old)
    checked, *later = [training.step() for _ in range(10)]

    assert is_read(checked)
    assert not any(map(is_read, later))


def test_a_log_between_two_steps_ends_no_alarm(line: RecordingLine) -> None:
    training = Training(line, THIN)
    training.go_to_a_step_that_is_left_out()
    training.step(factor=math.nan)
    training.step()
    training.watch.log(val_loss=1.0)

    assert is_read(training.step())


def test_histograms_come_of_the_steps_they_were_asked_for(line: RecordingLine) -> None:
    training = Training(line, Options(max_overhead=1e-9, histograms=7))
    training.run(CLIMB + LAST)
    held = {one.step for row in line.rows for one in row.histograms}

    assert held == set(range(0, CLIMB + LAST, 7))


def test_a_loop_with_a_row_for_each_batch_is_read_and_not_called_blind(
    line: RecordingLine,
) -> None:
    training = Training(line, THIN)
    for row in range(4 * (CLIMB + 2 * LAST)):
        if row % 4 == 3:
            training.step()
        else:
            training.watch.step(torch.tensor(1.0))
    last = [row for row in line.rows[-4 * LAST :] if row.layout is not None]

    assert 4 * LAST > BLIND_AFTER
    assert len(last) == LAST
    assert sum(map(is_read, last)) == 1
    assert "unwatched" not in line.kinds()


def test_a_step_that_the_scaler_skips_is_told_where_nothing_is_read(line: RecordingLine) -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    objects = Objects(modules={"": model}, optimizers=(optimizer,), scalers=(scaler,))
    watch = build_watch(objects, THIN, line.open, TEAM)
    skipped_at = CLIMB + 2
    for step in range(CLIMB + 4):
        optimizer.zero_grad()
        loss: Tensor = model(torch.randn(8, 6)).square().mean()
        torch.autograd.backward(scaler.scale(loss))
        if step == skipped_at:
            assert model.bias.grad is not None
            model.bias.grad[0] = torch.inf
        scaler.step(optimizer)
        scaler.update()
        watch.step(loss)

    assert not is_read(line.rows[skipped_at])
    assert [row.step for row in line.rows if row.metrics["skipped"]] == [skipped_at]


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, math.nan])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(AttachError, match=r"max_overhead: found .*, wanted a share such as 0\.005"):
        Options(max_overhead=share)
