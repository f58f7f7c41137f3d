"""Steps that a loss scaler skipped, in logs that tell of them by gradient and rate alone."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from runwatch_server.importing import read_run_log
from runwatch_server.importing.run_log import Entry
from runwatch_server.importing.skipped_steps import mark_skipped


def skipped_at(
    rates: Sequence[float], broken: Sequence[int], *, every: int = 1, loss: float = 2.0
) -> list[int]:
    """Places of the rows that are marked, where the norms at `broken` are NaN."""
    entries = [
        Entry(
            f"log_history[{place}]",
            (place + 1) * every,
            None,
            {
                "loss": loss,
                "learning_rate": rate,
                "grad_norm": math.nan if place in broken else 1.0,
            },
        )
        for place, rate in enumerate(rates)
    ]
    marked, notes = mark_skipped(entries)
    found = [place for place, entry in enumerate(marked) if entry.values.get("skipped") == 1.0]
    assert bool(found) == bool(notes)
    return found


def test_the_rate_that_stood_still_into_a_row_proves_it() -> None:
    assert skipped_at([9.0, 8.0, 7.0, 7.0, 6.0, 5.0], [3]) == [3]


def test_so_does_the_rate_that_stood_still_out_of_it_as_newer_trainers_log_it() -> None:
    assert skipped_at([9.0, 8.0, 7.0, 7.0, 6.0, 5.0], [2]) == [2]


def test_of_ten_steps_in_a_row_nine_changed_the_rate() -> None:
    assert skipped_at([90.0, 80.0, 71.0, 61.0, 51.0], [2], every=10) == [2]


def test_a_rate_that_went_on_says_that_the_step_was_taken() -> None:
    assert skipped_at([90.0, 80.0, 70.0, 60.0, 50.0], [2], every=10) == []


def test_a_cosines_pace_at_its_start_is_no_step_that_is_missing() -> None:
    rates = [math.cos(step / 100) for step in range(8)]

    assert [skipped_at(rates, [place]) for place in range(1, 6)] == [[], [], [], [], []]


def test_a_constant_rate_proves_nothing() -> None:
    assert skipped_at([3.0, 3.0, 3.0, 3.0, 3.0], [2]) == []
    assert skipped_at([0.0, 0.0, 0.0, 0.0, 0.0], [0]) == []


def test_a_scaler_that_begins_too_high_skips_the_first_steps_of_a_warm_up() -> None:
    assert skipped_at([0.0, 0.0, 0.0, 1.0, 2.0, 3.0], [0, 1, 2]) == [0, 1, 2]
    assert skipped_at([0.0, 1.0, 2.0, 3.0], [0]) == [0]


def test_a_loss_that_broke_too_is_no_scalers_doing() -> None:
    assert skipped_at([9.0, 8.0, 7.0, 7.0, 6.0, 5.0], [3], loss=math.nan) == []


def test_what_never_ends_is_no_scalers_search() -> None:
    assert skipped_at([9.0, 8.0, *[7.0] * 9, 6.0, 5.0], range(3, 11)) == [*range(3, 11)]
    assert skipped_at([9.0, 8.0, *[7.0] * 10, 6.0, 5.0], range(3, 12)) == []
    assert skipped_at([9.0, 8.0, 7.0, 7.0, 7.0], [3, 4]) == []


def test_a_rate_that_is_no_number_proves_nothing() -> None:
    assert skipped_at([0.0, 1.0, math.nan, math.nan, math.nan], [1]) == []


@pytest.mark.parametrize(("kept", "expected"), [("learning_rate", 1), ("other", 0)])
def test_a_trainers_state_has_them_and_says_so(tmp_path: Path, kept: str, expected: int) -> None:
    rates = [5.0, 4.0, 4.0, 3.0, 2.0]
    norms = [1.0, 1.0, math.inf, 1.0, 1.0]
    history = [
        {"step": step, "loss": 1.0, kept: rate, "grad_norm": norm}
        for step, (rate, norm) in enumerate(zip(rates, norms, strict=True), start=1)
    ]
    file = tmp_path / "trainer_state.json"
    file.write_text(json.dumps({"log_history": history}))

    log = read_run_log(file)

    assert sum("log_history[2]: no finite gradient" in note for note in log.notes) == expected
    assert ("skipped" in log.stretches[0].metric_names) == bool(expected)
