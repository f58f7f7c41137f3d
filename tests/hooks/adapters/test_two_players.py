"""What a module logs in its steps, where it steps several optimizers and returns no loss."""

import json
from pathlib import Path

import pytest
from tests.hooks.adapters.program_told import numbers, told_by

pytestmark = pytest.mark.heavy

PROGRAM = Path(__file__).with_name("two_players.py")


def test_what_a_lightning_module_logs_in_a_step_is_in_its_row(tmp_path: Path) -> None:
    service = told_by(PROGRAM, tmp_path, framework="lightning_module")

    losses = json.loads((tmp_path / "losses.json").read_text())
    assert numbers(service, "g_loss") == pytest.approx(losses)
    assert numbers(service, "user/lr") == [0.5] * 4, "theirs hides none of ours"
    assert numbers(service, "lr") == pytest.approx([0.1] * 4)
    assert numbers(service, "now_and_then") == [1, 3]
    assert len(numbers(service, "val_loss")) == 2
