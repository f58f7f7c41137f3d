"""What counts as a demo that worked."""

import math
from dataclasses import replace

import pytest

from runwatch_server.demo.outcome import Mode, Outcome

WORKED = Outcome(
    fault_step=500,
    detected_step=500,
    rolled_back_at=503,
    rolled_back_to=476,
    losses={Mode.CLEAN: [2.0] * 60, Mode.UNPROTECTED: [3.0] * 60, Mode.PROTECTED: [2.0] * 60},
    stored_losses=[2.0] * 60,
    false_alerts=0,
    url="http://127.0.0.1:1",
)


def test_a_demo_that_kept_every_promise_has_no_shortcomings() -> None:
    assert WORKED.shortcomings() == []
    assert WORKED.is_identical
    assert WORKED.steps_repeated == 28


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"detected_step": None}, "seen at step None"),
        ({"detected_step": 504}, "seen at step 504"),
        ({"detected_step": 499}, "seen at step 499"),
        ({"rolled_back_to": None}, "went back to step None"),
        ({"rolled_back_to": 501}, "went back to step 501"),
        ({"stored_losses": [2.0] * 59 + [math.nan]}, "not the trainer's"),
        ({"false_alerts": 1}, "1 warnings or pages"),
    ],
)
def test_a_fact_that_is_not_as_promised_is_named(change: dict[str, object], words: str) -> None:
    shortcomings = replace(WORKED, **change).shortcomings()  # type: ignore[arg-type]
    assert len(shortcomings) == 1
    assert words in shortcomings[0]


@pytest.mark.parametrize(
    ("mode", "loss"),
    [
        (Mode.PROTECTED, 2.05),
        (Mode.PROTECTED, 1.95),
        (Mode.PROTECTED, math.nan),
        (Mode.UNPROTECTED, 2.3),
        (Mode.CLEAN, math.nan),
    ],
)
def test_a_final_loss_out_of_its_bounds_is_a_shortcoming(mode: Mode, loss: float) -> None:
    losses = {**WORKED.losses, mode: [loss] * 60}
    assert replace(WORKED, losses=losses, stored_losses=losses[Mode.PROTECTED]).shortcomings()


def test_an_unprotected_run_that_ended_in_nan_is_ruined_and_shown_as_nan() -> None:
    losses = {**WORKED.losses, Mode.UNPROTECTED: [math.nan] * 60}
    outcome = replace(WORKED, losses=losses)
    assert outcome.shortcomings() == []
    assert outcome.to_document()["final_loss"] == {
        "clean": 2.0,
        "protected": 2.0,
        "unprotected": "NaN",
    }
