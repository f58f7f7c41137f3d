"""Which metrics are losses, by their names alone."""

import pytest

from runwatch.rules.nonfinite_rule import is_loss, is_of_evaluation
from runwatch.series import METRIC_SPECS


@pytest.mark.parametrize(
    "name",
    [
        *("loss", "Loss", "val_loss", "aux/loss", "train_loss_step", "Loss/train", "user/loss"),
        *("loss_G", "loss_D", "lossG", "GLoss", "d_loss", "loss_box_reg", "losses/generator"),
        *("weighted_loss", "scale_loss", "loss.1"),
    ],
)
def test_a_loss_is_known_by_its_name(name: str) -> None:
    assert is_loss(name)


@pytest.mark.parametrize("name", METRIC_SPECS["loss"].names)
def test_each_alias_of_the_loss_is_a_loss_of_the_training(name: str) -> None:
    assert is_loss(name)
    assert not is_of_evaluation(name)


@pytest.mark.parametrize("name", METRIC_SPECS["val_loss"].names)
def test_each_alias_of_the_validation_loss_is_a_loss_of_an_evaluation(name: str) -> None:
    assert is_loss(name)
    assert is_of_evaluation(name)


@pytest.mark.parametrize(
    "name",
    [
        *("loss_scale", "loss_of_chance", "loss_before", "loss_mad_before"),
        *("loss_gap", "loss_broken_on"),
        *("loss_std", "loss_weight", "best_loss", "best_val_loss", "min_loss"),
        *("lossless", "glossary", "floss", "accuracy", "", "1"),
    ],
)
def test_what_is_said_of_a_loss_is_none(name: str) -> None:
    assert not is_loss(name)


@pytest.mark.parametrize(
    "name", ["val_loss", "eval/loss", "testLoss", "validation.loss", "loss_dev"]
)
def test_the_loss_of_an_evaluation_is_known_by_its_name(name: str) -> None:
    assert is_loss(name)
    assert is_of_evaluation(name)


@pytest.mark.parametrize(
    "name", ["loss", "value_loss", "train/loss", "latest_loss", "interval_loss"]
)
def test_other_losses_are_those_of_the_training(name: str) -> None:
    assert not is_of_evaluation(name)
