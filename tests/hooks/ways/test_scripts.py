"""Whatever a script does: its rows tell the truth, and not a bit of it is changed."""

import copy
import io
import math
import pickle

import pytest
import torch
from tests.hooks.recorder import of_layer
from tests.hooks.ways import odd_tensors, scripts, several_steps
from tests.hooks.ways.trial import Trial, both, loss_of, mlp
from torch.optim import SGD

from runwatch_hooks.watch import InertWatch

ALL = scripts.SCRIPTS | odd_tensors.SCRIPTS | several_steps.SCRIPTS


@pytest.mark.parametrize("name", ALL)
def test_a_watched_script_computes_the_same_bits_and_is_told_truly(name: str) -> None:
    if "muon" in name and not hasattr(torch.optim, "Muon"):
        pytest.skip("torch has Muon since 2.9")
    bare, watched = both(ALL[name])

    assert watched.losses == bare.losses
    assert [row.metrics["loss"].hex() for row in watched.rows] == watched.losses
    assert watched.norms == bare.norms
    for told, norms in zip(watched.told_norms, watched.norms, strict=True):
        assert told == pytest.approx(norms, rel=2e-3, abs=1e-9)
    assert "hook_fault" not in watched.line.kinds()


def test_an_update_that_the_sample_missed_is_not_called_none() -> None:
    trial = both(scripts.one_huge_embedding)[1]

    assert of_layer(trial.rows[0], "zero_frac", "words.weight") > 0.99
    assert math.isnan(of_layer(trial.rows[0], "update_ratio", "words.weight"))
    assert of_layer(trial.rows[0], "update_ratio", "head.weight") > 0


@pytest.mark.parametrize("name", [one for one in ALL if one.endswith("_is_skipped")])
def test_of_several_scaled_steps_in_a_row_one_that_was_skipped_is_told(name: str) -> None:
    trial = both(ALL[name])[1]

    assert trial.line.metric("skipped") == [0.0, 0.0, 1.0, 0.0]
    assert [row.metrics["nonfinite"] for row in trial.rows] == [0.0, 0.0, 12.0, 0.0]


def test_a_step_that_raised_is_none() -> None:
    trial = both(several_steps.a_step_that_raises_and_another_batch)[1]

    assert trial.line.metric("optimizer_steps") == [2.0, 1.0, 2.0, 1.0]


def test_what_is_bad_in_any_step_of_a_row_is_counted() -> None:
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.0)
    trial = Trial(is_watched=True)
    watch = trial.attach(model, optimizer)
    for value in (1.0, math.nan, 2.0):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, value)
        optimizer.step()
    watch.step(1.0)
    watch.finish()

    assert of_layer(trial.rows[0], "nonfinite", "3.bias") == 3
    assert of_layer(trial.rows[0], "grad_absmax", "3.bias") == 2.0


def test_models_and_optimizers_are_copied_and_saved_as_ever() -> None:
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.1)
    trial = Trial(is_watched=True)
    watch = trial.attach(model, optimizer)
    torch.autograd.backward(loss_of(model))
    optimizer.step()
    watch.step(1.0)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    saved = torch.load(file, weights_only=False)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), saved]
    watch.finish()

    own = model.state_dict()
    assert all(torch.equal(one.state_dict()["0.weight"], own["0.weight"]) for one in copies)
    assert pickle.loads(pickle.dumps(optimizer)).state_dict() == optimizer.state_dict()


def test_what_holds_a_watch_is_copied_and_saved_and_its_run_is_told_once() -> None:
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.1)
    trial = Trial(is_watched=True)
    watch = trial.attach(model, optimizer)
    trainer = {"model": model, "watch": watch}

    copied = copy.deepcopy(trainer)
    elsewhere = pickle.loads(pickle.dumps(trainer))["watch"]
    elsewhere.step(1.0)
    elsewhere.finish()
    watch.step(1.0)
    watch.finish()

    assert copied["watch"] is watch
    assert copied["model"] is not model
    assert isinstance(elsewhere, InertWatch)
    assert elsewhere.run_id == watch.run_id
    assert len(trial.rows) == 1
