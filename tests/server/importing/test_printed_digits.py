"""How finely a log prints its losses."""

import math

import pytest

from runwatch_server.importing.printed_digits import note_resolution
from runwatch_server.importing.run_log import Entry


def resolutions(losses: list[float]) -> list[float | None]:
    entries = [Entry("line 2", None, None, {"train/loss": loss}) for loss in losses]
    told, _, _ = note_resolution(entries, {"train/loss": "loss"})
    return [entry.values.get("loss_resolution") for entry in told]


@pytest.mark.parametrize(
    ("losses", "resolution"),
    [
        ([2.31, 2.3, 2.0, 1.97, 1.9, 1.8, 10.5, 0.9], 0.01),
        ([2.3126, 2.25, 0.5, 0.0, 0.25, 0.75, 1.0, 0.0], 1e-4),
        ([120.0, 95.0, 90.0, 87.0, 83.0, 81.0, 79.0, 78.0], 1.0),
    ],
)
def test_a_rounded_loss_moves_by_its_last_digit(losses: list[float], resolution: float) -> None:
    assert resolutions(losses) == [pytest.approx(resolution)] * 8


def test_a_loss_in_bfloat16_moves_by_its_last_bit() -> None:
    found = resolutions(
        [0.69921875, 0.69921875, 0.6953125, 0.703125, 1.0078125, 2.328125, 1.5, 0.75]
    )

    assert found == [2**-8] * 4 + [2**-7, 2**-6, 2**-7, 2**-8]


def test_a_loss_in_float16_does_too() -> None:
    assert resolutions([0.69970703125, 0.6953125, *[0.75] * 6]) == [2**-11] * 8


def test_a_loss_of_so_many_significant_digits_is_finer_where_it_is_small() -> None:
    found = resolutions([1.23, 1.5, 1.1, 1.01, 1.7, 1.9, 1.6, 1.4, *[1.23e-5] * 8, 0.12])

    assert found == [pytest.approx(1e-2)] * 8 + [pytest.approx(1e-7)] * 9


@pytest.mark.parametrize(
    "losses",
    [[2.0 / 3.0] * 8, [2.31] * 7, [math.nan] * 8],
    ids=["a float as it is", "too few to tell", "no numbers"],
)
def test_of_other_losses_nothing_is_known(losses: list[float]) -> None:
    assert set(resolutions(losses)) == {None}


def test_a_row_whose_loss_is_no_number_has_no_resolution() -> None:
    assert resolutions([math.inf, *[2.31] * 8])[:2] == [None, pytest.approx(0.01)]
