"""Histograms and activations of a training: the rows that bring them, and when."""

import math
from typing import Any, cast

import numpy as np
import pytest
import torch
from tests.hooks.recorder import RecordingLine, of_layer, stat
from tests.hooks.tiny import tiny_gpt, train_one, watched
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from runwatch.commands import Command, CommandState, Detail
from runwatch.histograms import ABOVE, FIRST_EXPONENT, NONFINITE, ZEROS, HistogramKind, Histograms
from runwatch.nonfinite import is_absent
from runwatch.vocabulary import CommandId
from runwatch_hooks.detail import Schedule, bits, detail
from runwatch_hooks.detail.bits import Departures, Lot
from runwatch_hooks.faults import Faults
from runwatch_hooks.settings.options import Options
from runwatch_hooks.statistics.readback import Readback
from runwatch_hooks.step.row import Row
from runwatch_hooks.watch import Watch


def trained(line: RecordingLine, num_steps: int, options: Options) -> nn.Module:
    model = tiny_gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    watch = watched(model, optimizer, line=line, options=options)
    for _ in range(num_steps):
        watch.step(train_one(model, optimizer))
    watch.finish()
    assert watch.num_faults == 0
    return model


def histograms(line: RecordingLine, kind: HistogramKind) -> dict[int, Histograms]:
    return {one.step: one for row in line.rows for one in row.histograms if one.kind is kind}


def activations(line: RecordingLine) -> list[Row]:
    return [row for row in line.rows if row.layout and "act_mean" in row.layout.stats]


def test_nothing_is_taken_unasked(line: RecordingLine) -> None:
    model = trained(line, 4, Options())

    assert not any(row.histograms for row in line.rows)
    assert not activations(line)
    assert not any(vars(module)["_forward_hooks"] for module in model.modules())


def test_a_step_that_was_interrupted_leaves_no_hooks_behind() -> None:
    """As by Ctrl-C in a notebook, whose next cell trains on."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    taken = detail.Detail({"": model}, Schedule(None, 1), Faults())
    for step in (0, 1, 2, 2):
        taken.begin_step(step)
        model(torch.ones(2))

    taken.end_step()

    assert not any(vars(module)["_forward_hooks"] for module in model.modules())


def test_what_an_interrupted_step_saw_is_not_taken_for_the_next_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*_: object) -> list[Lot]:
        raise KeyboardInterrupt

    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    taken = detail.Detail({"": model}, Schedule(2, 3), Faults())
    for step in (0, 1, 3):
        taken.begin_step(step)
        model(torch.ones(2))
    with monkeypatch.context() as patched:
        patched.setattr(Departures, "send", interrupt)
        with pytest.raises(KeyboardInterrupt):
            taken.end_step()
    taken.begin_step(4)  # histograms alone

    closeup = taken.end_step()

    assert closeup is not None
    assert closeup.rows(4, 0, 0.0) == []


class Interrupted(nn.Linear):
    def register_forward_hook(self, *_: Any, **__: Any) -> RemovableHandle:
        raise KeyboardInterrupt


def test_an_interrupt_while_hooks_are_put_on_leaves_none_behind() -> None:
    model = nn.Sequential(nn.Linear(2, 2), Interrupted(2, 2))
    taken = detail.Detail({"": model}, Schedule(None, 1), Faults())
    taken.begin_step(0)
    taken.begin_step(1)
    with pytest.raises(KeyboardInterrupt):
        taken.begin_step(2)  # the first at which modules are looked at

    taken.close()

    assert not any(vars(module)["_forward_hooks"] for module in model.modules())


def test_histograms_hold_every_element_of_every_layer(line: RecordingLine) -> None:
    model = trained(line, 4, Options(histograms=2))

    sizes = {name: one.numel() for name, one in model.named_parameters()}
    for kind in (HistogramKind.GRADIENTS, HistogramKind.WEIGHTS):
        found = histograms(line, kind)
        assert list(found) == [0, 2]
        held = dict(zip(found[2].names, found[2].counts().sum(axis=1).tolist(), strict=True))
        assert held == sizes


def test_weights_are_those_before_the_step(line: RecordingLine) -> None:
    before = tiny_gpt().get_parameter("blocks.0.norm.weight")
    trained(line, 1, Options(histograms=1))

    found = histograms(line, HistogramKind.WEIGHTS)[0]
    counts = found.counts()[found.names.index("blocks.0.norm.weight")]
    assert counts[FIRST_EXPONENT + 40] == before.numel()  # all of them 1.0


def test_a_gradient_that_breaks_stands_in_its_histogram(line: RecordingLine) -> None:
    model = tiny_gpt()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    watch = watched(model, optimizer, line=line, options=Options(histograms=1))
    loss = model(*[torch.zeros(1, 3, dtype=torch.long)] * 2)
    torch.autograd.backward(loss)
    grad = model.tokens.weight.grad
    assert grad is not None
    grad[1, 2] = math.nan
    optimizer.step()
    watch.step(loss)
    watch.finish()

    found = histograms(line, HistogramKind.GRADIENTS)[0]
    counts = found.counts()[found.names.index("tokens.weight")]
    assert counts[NONFINITE] == 1
    assert counts[ABOVE] == counts[ZEROS] == 0


def test_activations_are_stats_of_modules_in_a_row_after_that_of_their_step(
    line: RecordingLine,
) -> None:
    model = trained(line, 7, Options(activations=3))

    steps = [row.step for row in line.rows]
    rows = activations(line)
    assert [row.step for row in rows] == [3, 6]
    assert steps == sorted(steps)
    assert rows[0].layout is not None
    assert "blocks.1.qkv" in rows[0].layout.layer_names
    assert of_layer(rows[0], "act_std", "blocks.0.norm") == pytest.approx(1.0, abs=0.01)
    assert not rows[0].metrics
    assert not any(vars(module)["_forward_hooks"] for module in model.modules())


def test_dropped_activations_are_zeros(line: RecordingLine) -> None:
    trained(line, 5, Options(activations=4))

    share = of_layer(activations(line)[0], "act_zero_frac", "blocks.0.dropout")
    assert 0.02 < share < 0.25


def test_histograms_of_activations_are_taken_where_both_are(line: RecordingLine) -> None:
    trained(line, 5, Options(activations=2, histograms=4))

    found = histograms(line, HistogramKind.ACTIVATIONS)
    assert list(found) == [4]
    counts = found[4].counts()[found[4].names.index("blocks.0.qkv")]
    assert counts.sum() == 4 * 8 * 36


def test_a_command_asks_for_all_of_some_steps(line: RecordingLine) -> None:
    model = tiny_gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    watch = watched(model, optimizer, line=line)
    for step in range(9):
        if step == 3:
            line.commands.append(Command(CommandId("c"), Detail(steps=2), 1, math.inf))
        watch.step(train_one(model, optimizer))
    watch.finish()

    assert list(histograms(line, HistogramKind.GRADIENTS)) == [4, 5]
    assert list(histograms(line, HistogramKind.ACTIVATIONS)) == [4, 5]
    assert [row.step for row in activations(line)] == [4, 5]
    assert [receipt.state for receipt in line.receipts] == [CommandState.APPLIED]
    assert "detail" in line.kinds()


def test_a_step_that_raises_is_seen_together_with_the_next(line: RecordingLine) -> None:
    model = tiny_gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    watch = watched(model, optimizer, line=line, options=Options(activations=1))
    for _ in range(3):
        watch.step(train_one(model, optimizer))
    with pytest.raises(IndexError):
        model(torch.full((1, 3), 99), torch.zeros(1, 3, dtype=torch.long))
    watch.step(train_one(model, optimizer))
    watch.finish()

    assert watch.num_faults == 0
    assert [row.step for row in activations(line)] == [2, 3]


def test_a_compiled_model_says_that_it_tells_nothing(line: RecordingLine) -> None:
    model = tiny_gpt()
    model.compile(backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    watch = watched(model, optimizer, line=line, options=Options(activations=1))
    for _ in range(5):
        watch.step(train_one(model, optimizer))
    watch.finish()

    told = [event.detail["what"] for event in line.events if event.kind == "unwatched"]
    assert told == ["no module of the model tells what it returns: it is compiled"]
    assert not activations(line)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_numbers_of_64_bits_come_off_a_device_as_they_are(dtype: torch.dtype) -> None:
    values = torch.tensor([[2**62 + 1, -1], [0, 2**31]]).to(dtype)
    ring = Readback(8, torch.device("cpu"))

    lot = Lot([0, 1], values, ring.send(values.view(torch.float32).reshape(-1)))

    assert np.array_equal(lot.values(), values.numpy())


class Distant(Tensor):
    """Says that it lies on a card, of which the test needs none."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda")


def test_of_four_steps_all_kinds_may_be_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_ring(num_values: int, device: torch.device, depth: int) -> Readback:
        return Readback(num_values, torch.device("cpu"), depth)

    monkeypatch.setattr(bits, "Readback", open_ring)
    departures = Departures()
    kinds = [*HistogramKind, "sums"]
    sent: list[Lot] = []
    for step in range(4):
        values = torch.full((2,), step).as_subclass(Distant)
        sent += [lot for kind in kinds for lot in departures.send(kind, [0], [values])]
    num_lost = departures.num_lost
    departures.send(kinds[0], [0], [torch.zeros(2).double().as_subclass(Distant)])

    assert [lot.values().tolist() for lot in sent] == [
        [[step] * 2] for step in range(4) for _ in kinds
    ]
    assert (num_lost, departures.num_lost) == (0, 1)


class Full(Departures):
    """Where nothing finds room any more."""

    def send(self, kind: str, rows: list[int], values: list[Tensor]) -> list[Lot]:
        self.num_lost += 1
        return []


def test_steps_of_which_something_found_no_room_are_told(
    line: RecordingLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detail, "Departures", Full)
    trained(line, 5, Options(histograms=1, activations=1))

    gaps = [event.detail for event in line.events if event.kind == "gap"]
    assert gaps == [{"rows_without_stats": 1}] * 5
    assert not activations(line)


class Ragged(nn.Module):
    """Returns rows of several lengths, which have no elements in one dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.nested.as_nested_tensor([x * self.weight, x[:2] * self.weight[:2]])


class Padded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Ragged()

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, torch.nested.to_padded_tensor(self.inner(x), 0.0))


def step_of(model: nn.Module, watch: Watch, optimizer: Optimizer) -> None:
    optimizer.zero_grad()
    loss = model(torch.ones(3)).sum()
    torch.autograd.backward(loss)
    optimizer.step()
    watch.step(loss)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_rows_of_several_lengths_are_left_alone(line: RecordingLine) -> None:
    model = Padded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = watched(model, optimizer, line=line, options=Options(activations=1))
    for _ in range(4):
        step_of(model, watch, optimizer)
    watch.finish()
    seen = activations(line)[-1]

    assert watch.num_faults == 0
    assert not is_absent(stat(seen, "act_mean"))[_names(seen).index("(model)")]
    assert is_absent(stat(seen, "act_mean"))[_names(seen).index("inner")]


def test_what_goes_wrong_in_looking_is_not_raised_into_the_forward_pass(
    line: RecordingLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(output: Tensor) -> Tensor:
        raise TypeError("MPS has no float64")

    monkeypatch.setattr(detail, "sums_of", cannot)
    trained_model = tiny_gpt()
    optimizer = torch.optim.AdamW(trained_model.parameters(), lr=1e-3)
    watch = watched(trained_model, optimizer, line=line, options=Options(activations=1))
    for _ in range(5):
        watch.step(train_one(trained_model, optimizer))
    watch.finish()

    assert watch.num_faults == 1
    assert line.kinds().count("hook_fault") == 1
    assert len(line.metric("grad_norm")) == 5
    assert not any(vars(module)["_forward_hooks"] for module in trained_model.modules())


def _names(row: Row) -> list[str]:
    assert row.layout is not None
    return list(row.layout.layer_names)
