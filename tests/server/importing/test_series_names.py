"""Which of a log's names is its loss, where none is that by a name that many use."""

import pytest

from runwatch_server.importing.series_names import map_names


def loss_of(*names: str) -> str | None:
    return next((name for name, ours in map_names(names).metrics.items() if ours == "loss"), None)


@pytest.mark.parametrize(
    "name", ["train_loss_local", "avg loss so far", "train/cross_entropy_loss"]
)
def test_the_only_loss_of_a_log_is_its_loss(name: str) -> None:
    assert loss_of("lr", name, "val_loss_local", "eval/ce_loss") == name


@pytest.mark.parametrize(
    "names",
    [
        ("ce_loss", "dice_loss"),
        ("train/entropy_loss", "train/std"),
        ("kl_loss", "recon"),
        ("D_loss", "time"),
        ("val/ce_loss", "lr"),
    ],
)
def test_a_part_of_a_loss_is_none(names: tuple[str, ...]) -> None:
    assert loss_of(*names) is None


def test_a_name_that_many_use_comes_first() -> None:
    assert loss_of("ce_loss", "loss") == "loss"


def test_what_a_policy_returns_is_its_reward() -> None:
    assert map_names(["return", "policy_loss"]).metrics["return"] == "reward"


def test_a_return_beside_a_reward_keeps_its_name() -> None:
    names = map_names(["return", "policy_loss", "mean_reward"]).metrics

    assert (names["return"], names["mean_reward"]) == ("return", "reward")


def test_a_return_without_a_policy_keeps_its_name() -> None:
    assert map_names(["loss", "return"]).metrics["return"] == "return"
