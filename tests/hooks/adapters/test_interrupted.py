"""A training that was interrupted leaves nothing behind for the next one in the same process."""

from pathlib import Path

import pytest
from tests.hooks.adapters.program_told import numbers, told_by

pytestmark = pytest.mark.heavy

PROGRAM = Path(__file__).with_name("interrupted_trainer.py")


def test_a_trainer_that_trains_again_after_an_interruption_counts_each_loss_once(
    tmp_path: Path,
) -> None:
    service = told_by(PROGRAM, tmp_path, framework="hf_trainer")
    (first, *rest) = numbers(service, "loss")

    assert rest == [pytest.approx(first)] * 2
    assert [closing.status for closing in service.closings] == ["failed", "finished"]
