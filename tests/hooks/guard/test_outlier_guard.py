"""The guard against outliers: a step by gradients far outside their past changes nothing."""

import json
import math
from typing import Any, cast

import pytest
import torch
from tests.hooks.guard.guarded import KINDS, Training, are_same, watch_over
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import TEAM
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, AdamW

from runwatch.errors import InvalidInputError
from runwatch_hooks.attaching.wiring import Objects, build_watch
from runwatch_hooks.errors import AttachError
from runwatch_hooks.faults import Faults
from runwatch_hooks.guard import Outliers
from runwatch_hooks.guard.clipped_norms import ClippedNorms
from runwatch_hooks.guard.norm_past import MOST_GUARDED, WARM_UP
from runwatch_hooks.settings.options import Guarding, Options
from runwatch_hooks.state import TrainingState


def step(training: Training, factor: float = 1.0, max_norm: float | None = None) -> None:
    """One whose gradients come out `factor` times too large."""
    loss = training.gradients()
    for parameter in training.model.parameters():
        assert parameter.grad is not None
        parameter.grad.mul_(factor)
    if max_norm is not None:
        clip_grad_norm_(training.model.parameters(), max_norm)
    training.optimizer.step()
    training.watch.step(loss)


def trained(
    kind: str = "adamw, foreach", guard: Guarding = "outliers", max_norm: float | None = None
) -> Training:
    """One whose norms are learned."""
    training = Training(KINDS[kind], guard=guard)
    for _ in range(WARM_UP):
        step(training, max_norm=max_norm)
    return training


@pytest.mark.parametrize("kind", KINDS)
def test_an_outlier_changes_no_weight_no_moment_and_no_count(kind: str) -> None:
    training = trained(kind)
    before = training.state()
    step(training, 1000.0)
    between = training.state()
    step(training)
    events = [one.detail for one in training.line.events if one.kind == "guarded"]

    assert are_same(before, between)
    assert not are_same(before, training.state())
    assert training.line.metric("guarded_steps")[-2:] == [1.0, 0.0]
    assert training.line.metric("guarded_outliers")[-2:] == [1.0, 0.0]
    assert sum(training.line.metric("guarded_steps")) == 1.0
    assert events == [{"because": "outside its past"}]
    assert training.watch.num_faults == 0
    training.watch.finish()


@pytest.mark.parametrize("kind", ["adamw, foreach", "adamw, fused"])
def test_an_outlier_that_a_closure_made_and_clipped_changes_nothing_either(kind: str) -> None:
    training = trained(kind, max_norm=0.5)
    before = training.state()

    def closure() -> Tensor:
        loss = training.gradients()
        for parameter in training.model.parameters():
            assert parameter.grad is not None
            parameter.grad.mul_(1000.0)
        clip_grad_norm_(training.model.parameters(), 0.5)
        return loss

    training.watch.step(cast(Any, training.optimizer).step(closure))

    assert are_same(before, training.state())
    assert training.line.metric("guarded_outliers")[-1] == 1.0
    assert training.line.metric("grad_norm")[-1] > 100.0 * training.line.metric("grad_norm")[-2]
    training.watch.finish()


def test_the_guard_of_bad_gradients_alone_lets_an_outlier_pass() -> None:
    training = trained(guard=True)
    before = training.state()
    step(training, 1000.0)

    assert not are_same(before, training.state())
    assert training.line.metric("guarded_outliers") == []
    training.watch.finish()


@pytest.mark.parametrize("kind", ["adamw, foreach", "adamw, fused"])
def test_where_nothing_is_outside_the_training_is_the_same_to_the_bit(kind: str) -> None:
    states: list[list[Tensor]] = []
    ways: tuple[Guarding, ...] = (False, "outliers")
    for guard in ways:
        training = Training(KINDS[kind], guard=guard)
        torch.manual_seed(1)
        for _ in range(WARM_UP + 20):
            step(training, max_norm=1.0)
        states.append(training.state())
        training.watch.finish()

    assert are_same(*states)


def test_the_norm_of_before_a_clip_is_judged() -> None:
    training = trained(max_norm=0.1)
    before = training.state()
    step(training, 1000.0, max_norm=0.1)

    assert are_same(before, training.state())
    assert training.line.metric("guarded_outliers")[-1] == 1.0
    training.watch.finish()


def test_a_bad_step_is_told_from_an_outlier() -> None:
    training = trained()
    before = training.state()
    training.step(torch.nan)
    events = [one.detail for one in training.line.events if one.kind == "guarded"]

    assert are_same(before, training.state())
    assert training.line.metric("guarded_steps")[-1] == 1.0
    assert training.line.metric("guarded_outliers")[-1] == 0.0
    assert events == [{"because": "not finite"}]
    training.watch.finish()


def test_a_lasting_level_stops_eight_steps_and_is_told() -> None:
    training = trained("sgd, fused")
    for _ in range(MOST_GUARDED):
        step(training, 100.0)
    before = training.state()
    step(training, 100.0)

    assert not are_same(before, training.state())
    assert sum(training.line.metric("guarded_outliers")) == MOST_GUARDED
    assert training.line.kinds().count("guard_relearned") == 1
    training.watch.finish()


@pytest.mark.parametrize("fused", [False, True])
def test_beside_a_gradient_scaler_outliers_are_ours_and_infinities_are_its_own(fused: bool) -> None:
    line = RecordingLine()
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = AdamW(model.parameters(), lr=1e-3, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    watch = watch_over(model, optimizer, line=line, guard="outliers")
    held: list[bool] = []
    for factor in [*[1.0] * WARM_UP, 1000.0, math.inf, 1.0]:
        before = model.weight.clone()
        optimizer.zero_grad()
        loss: Tensor = model(torch.ones(2, 3)).sum() * factor
        torch.autograd.backward(scaler.scale(loss))
        scaler.step(optimizer)
        scaler.update()
        watch.step(1.0)
        held.append(torch.equal(before, model.weight))

    assert held[-3:] == [True, True, False]
    assert not any(held[:-3])
    assert line.metric("guarded_outliers")[-3:] == [1.0, 0.0, 0.0]
    assert line.metric("guarded_steps")[-3:] == [1.0, 0.0, 0.0]
    assert line.metric("skipped")[-3:] == [0.0, 1.0, 0.0]
    assert scaler.get_scale() == 2.0  # halved once, by the infinity
    watch.finish()


def test_each_optimizer_has_a_past_of_its_own() -> None:
    line = RecordingLine()
    model = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)])
    optimizers = [SGD(one.parameters(), lr=1e-6) for one in model]
    watch = watch_over(model, *optimizers, line=line, guard="outliers")
    before: list[Tensor] = []
    for factors in [*[(1.0, 1000.0)] * WARM_UP, (1000.0, 1000.0)]:
        before = [one.get_parameter("weight").clone() for one in model]
        for part, optimizer, factor in zip(model, optimizers, factors, strict=True):
            optimizer.zero_grad()
            torch.autograd.backward(part(torch.ones(1, 2)).sum() * factor)
            optimizer.step()
        watch.step(1.0)
    held = [
        torch.equal(one, part.get_parameter("weight"))
        for one, part in zip(before, model, strict=True)
    ]

    assert held == [True, False]
    assert line.metric("guarded_outliers")[-1] == 1.0
    watch.finish()


def test_a_clip_over_some_of_the_parameters_is_no_norm_of_all() -> None:
    parameters = [nn.Parameter(torch.ones(2)) for _ in range(3)]
    for one in parameters:
        one.grad = torch.ones(2)
    norms = ClippedNorms(Faults())
    norms.install()
    clip_grad_norm_(parameters[:2], 1.0)
    some = norms.take(parameters)
    clip_grad_norm_(parameters, 1.0)
    found, again = norms.take(parameters), norms.take(parameters)
    norms.remove()
    clip_grad_norm_(parameters, 1.0)

    assert some is None
    assert found is not None
    assert found.item() == pytest.approx(3**0.5, rel=1e-5)  # 1 of the two that were clipped, and 2
    assert again is None
    assert norms.take(parameters) is None


def test_a_later_life_of_the_run_goes_on_with_the_past() -> None:
    training = trained()
    saved = json.loads(json.dumps(training.watch.state_dict(), allow_nan=False))
    training.watch.finish()
    line = RecordingLine()
    objects = Objects(modules={"": training.model}, optimizers=(training.optimizer,))
    training.watch = build_watch(objects, Options(guard="outliers"), line.open, TEAM, saved)
    before = training.state()
    step(training, 1000.0)

    assert are_same(before, training.state())
    assert line.metric("guarded_outliers") == [1.0]
    training.watch.finish()


def test_a_state_whose_past_is_none_is_refused_whole() -> None:
    training = trained()
    watch = training.watch
    before = watch.state_dict()
    receipt = {"command_id": "c1", "attempt": 1, "rank": 0, "state": "applied", "step": 3}
    actor = {"journal": [receipt], "lr_scale": 0.5}
    for past in ({"0": {"num_judged": 3, "levels": [None]}}, {"0": 3}, [3]):
        with pytest.raises(InvalidInputError, match="state_dict: found"):
            watch.load_state_dict({"next_step": 7, "actor": actor, "guard": past})

    assert watch.state_dict() == before
    watch.finish()


def test_the_past_goes_back_with_a_rollback_and_an_older_state_fits_without_it() -> None:
    model = nn.Linear(2, 1)
    optimizer = SGD(model.parameters(), lr=0.1)
    outliers = Outliers([optimizer], Faults())
    finite = torch.tensor(0.0)
    bare = TrainingState({"": model}, [optimizer])
    state = TrainingState({"": model}, [optimizer], own={"outliers": outliers})
    older = bare.capture().tree
    for _ in range(WARM_UP):
        outliers.judge(optimizer, torch.tensor(1.0), finite)
    learned = state.capture().tree
    state.restore(older)
    kept = outliers.judge(optimizer, torch.tensor(100.0), finite).is_outlier
    outliers.load_state_dict({})
    forgotten = outliers.judge(optimizer, torch.tensor(100.0), finite).is_outlier
    state.restore(learned)
    restored = outliers.judge(optimizer, torch.tensor(100.0), finite).is_outlier
    bare.restore(learned)

    assert (bool(kept), bool(forgotten), bool(restored)) == (True, False, True)


def test_what_is_no_way_of_guarding_is_refused() -> None:
    with pytest.raises(AttachError, match="found 'loss', wanted True, False or \"outliers\""):
        Options(guard=cast(Guarding, "loss"))
