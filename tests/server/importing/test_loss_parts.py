"""The loss of logs that hold its parts alone."""

import math

from runwatch_server.importing.loss_parts import add_up
from runwatch_server.importing.run_log import Entry


def totals(**values: float) -> dict[str, float]:
    """The losses that a row has with its parts added up."""
    row = {name.replace("__", "/"): value for name, value in values.items()}
    (entry,), _ = add_up([Entry("line 2", None, None, row)])
    return {name: value for name, value in entry.values.items() if name.endswith("/loss")}


def test_the_parts_of_a_detector_make_its_loss() -> None:
    found = totals(train__box_loss=1.0, train__cls_loss=2.0, val__box_loss=3.0, val__cls_loss=1.5)

    assert found == {"train/loss": 3.0, "val/loss": 4.5}


def test_a_part_that_is_no_number_makes_the_loss_none() -> None:
    assert math.isnan(totals(train__box_loss=math.nan, train__cls_loss=2.0)["train/loss"])


def test_a_row_without_one_of_the_parts_has_no_loss() -> None:
    entries = [
        Entry("line 2", None, None, {"train/box_loss": 1.0, "train/cls_loss": 2.0}),
        Entry("line 3", None, None, {"train/box_loss": 1.0}),
    ]

    assert "train/loss" not in add_up(entries)[0][1].values


def test_losses_of_several_models_are_not_added() -> None:
    assert totals(train__actor_loss=-3.0, train__critic_loss=2.0) == {}


def test_a_loss_that_is_told_is_left_alone() -> None:
    assert totals(loss=9.0, train__box_loss=1.0, train__cls_loss=2.0) == {}
