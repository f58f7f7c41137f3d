"""A training that makes its optimizer anew: what it lets go, the watch lets go as well."""

import gc
from collections.abc import Sequence
from typing import Any
from weakref import ref

import pytest
import torch
from tests.hooks.guard.guarded import states_of
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import TinyGpt, tiny_gpt, train_one, watched
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from runwatch_hooks.run import LiveWatch
from runwatch_hooks.settings.options import Guarding, Options

STEPS = 3
"""Of an epoch."""


def train_epoch(watch: LiveWatch, model: TinyGpt, optimizer: Optimizer) -> None:
    for _ in range(STEPS):
        watch.step(train_one(model, optimizer, max_norm=1.0))


def kept_of(optimizer: Optimizer) -> list[ref[Any]]:
    """What would be too much to be held: the optimizer and its moments."""
    return [ref(optimizer), *(ref(one) for one in states_of(optimizer))]


def num_alive(kept: Sequence[ref[Any]]) -> int:
    gc.collect()
    return sum(one() is not None for one in kept)


@pytest.mark.parametrize("guard", [False, "outliers"])
def test_no_epochs_moments_outlive_it(guard: Guarding) -> None:
    model = tiny_gpt()
    optimizer = AdamW(model.parameters(), lr=1e-2)
    options = Options(guard=guard, allow=("rollback",), snapshot_every=2)
    watch = watched(model, optimizer, line=RecordingLine(), options=options)
    kept: list[ref[Any]] = []
    for _ in range(3):
        train_epoch(watch, model, optimizer)
        kept += kept_of(optimizer)
        optimizer = AdamW(model.parameters(), lr=1e-2)
    train_epoch(watch, model, optimizer)

    assert len(kept) > 3
    assert num_alive(kept) == 0
    assert num_alive(kept_of(optimizer)) > 1
    assert watch.num_faults == 0
    watch.finish()


def test_rows_go_on_as_before() -> None:
    line = RecordingLine()
    model = tiny_gpt()
    optimizer: Optimizer = AdamW(model.parameters(), lr=0.5)
    watch = watched(model, optimizer, line=line)
    for rate in (0.25, 0.125):
        train_epoch(watch, model, optimizer)
        optimizer = SGD(model.parameters(), lr=rate)
    train_epoch(watch, model, optimizer)

    assert line.metric("lr") == [0.5] * STEPS + [0.25] * STEPS + [0.125] * STEPS
    assert len({row.layout.hash for row in line.rows if row.layout is not None}) == 1
    assert all(row.metrics["layers_with_grad"] == 13.0 for row in line.rows)
    assert not any("lr.1" in row.metrics for row in line.rows)
    watch.finish()


def test_the_rates_of_those_that_stay_keep_their_names() -> None:
    line = RecordingLine()
    model = tiny_gpt()
    first: Optimizer | None = SGD(model.blocks.parameters(), lr=0.5)
    second = SGD(model.tokens.parameters(), lr=0.25)
    assert first is not None
    watch = watched(model, first, second, line=line)
    watch.step(train_one(model, first))
    first = None
    watch.step(train_one(model, second))
    third = SGD(model.blocks.parameters(), lr=0.125)
    watch.step(train_one(model, third))

    assert line.metric("lr") == [0.5, 0.125]
    assert line.metric("lr.1") == [0.25]
    watch.finish()


def test_each_layer_that_is_added_to_one_made_later_is_missed_for_a_step() -> None:
    line = RecordingLine()
    model = nn.Sequential(nn.Linear(2, 2))
    watch = watched(model, SGD(model.parameters(), lr=0.1), line=line)
    optimizer = SGD(model.parameters(), lr=0.1)
    for step in range(5):
        if step in (0, 2):
            layer = nn.Linear(2, 2)
            model.append(layer)
            optimizer.add_param_group({"params": list(layer.parameters())})
        optimizer.zero_grad()
        torch.autograd.backward(model(torch.ones(1, 2)).sum())
        optimizer.step()
        watch.step(1.0)

    assert line.metric("layers_with_grad") == [2.0, 4.0, 4.0, 6.0, 6.0]
    watch.finish()


@pytest.mark.parametrize("lives_on_for", [0, 2])
def test_what_a_module_replaces_is_a_layer_until_its_optimizer_is_gone(lives_on_for: int) -> None:
    """As by pruning that cuts layers, and makes an optimizer for those that it has put there."""
    line = RecordingLine()
    model = nn.Linear(2, 2)
    optimizer = SGD(model.parameters(), lr=1e-6)
    watch = watched(model, optimizer, line=line)
    cut: list[ref[Any]] = []
    former: list[Optimizer] = []
    for step in range(6):
        if step == 2:
            cut = [ref(one) for one in model.parameters()]
            model.weight = nn.Parameter(torch.ones(1, 2))
            model.bias = nn.Parameter(torch.ones(1))
            former.append(optimizer)
            optimizer = SGD(model.parameters(), lr=1e-6)
        if step == 2 + lives_on_for:
            former.clear()
        optimizer.zero_grad()
        torch.autograd.backward(model(torch.ones(1, 2)).sum())
        optimizer.step()
        watch.step(1.0)
    last = line.rows[-1]

    assert last.layout is not None
    assert last.layout.layer_names == ("weight", "bias")
    assert last.metrics["param_norm"] == pytest.approx(3**0.5, rel=1e-4)
    assert num_alive(cut) == 0
    watch.finish()


def test_a_parameter_that_only_a_given_optimizer_knew_stays_a_layer() -> None:
    line = RecordingLine()
    model = tiny_gpt()
    scale = torch.nn.Parameter(torch.ones(2))
    optimizer = SGD([*model.parameters(), scale], lr=0.1)
    watch = watched(model, optimizer, line=line)
    for _ in range(2):
        scale.grad = torch.ones(2)
        optimizer.step()
        watch.step(1.0)
        optimizer = SGD([*model.parameters(), scale], lr=0.1)
    optimizer.step()
    watch.step(1.0)
    layouts = [row.layout.layer_names[-1] for row in line.rows if row.layout is not None]

    assert layouts == ["opt0.g0.p13"] * 3
    watch.finish()
