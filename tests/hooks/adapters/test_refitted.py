"""Lightning's callback in fit after fit: each goes on from what it was given itself."""

import json
from pathlib import Path

import pytest
from tests.hooks.adapters.program_told import numbers, told_by

pytestmark = pytest.mark.heavy

PROGRAM = Path(__file__).with_name("refitted_module.py")


def test_a_fit_from_the_start_is_a_run_of_its_own_whatever_an_earlier_one_loaded(
    tmp_path: Path,
) -> None:
    service = told_by(PROGRAM, tmp_path, framework="lightning_module")
    (first, resumed, broken_off, after_a_test) = json.loads((tmp_path / "fits.json").read_text())

    assert (first[1], resumed) == (3, [first[0], 6])
    assert (broken_off[1], after_a_test[1]) == (1, 3)
    assert len({first[0], broken_off[0], after_a_test[0]}) == 3
    assert numbers(service, "loss") == [1.0, 1.0, 0.5, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 0.5]
