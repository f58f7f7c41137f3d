"""Real trainings that leave something out, each beside its sound twin, judged by a real service."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.end_to_end.real_service import NOBODY_IS_MISSED, RealService
from tests.end_to_end.trainer import bring_in, watched_by

pytestmark = pytest.mark.heavy

_PROGRAM: Final = Path(__file__).with_name("omitting_program.py")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RealService]:
    with RealService(tmp_path / "service", environment=NOBODY_IS_MISSED) as running:
        yield running


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("adversarial", "LayersNotTrained"),
        ("replaced_head", "LayersNotTrained"),
        ("evaluated", "TrainingInEvalMode"),
        ("clipped", "ClipBeforeUnscale"),
        ("uncleared", "GradientsNotCleared"),
        ("resumed", "OptimizerStateNotRestored"),
        ("rescheduled", "SchedulerStateNotRestored"),
    ],
)
def test_what_is_left_out_is_told_and_the_sound_twin_is_silent(
    kind: str, rule: str, service: RealService, tmp_path: Path
) -> None:
    alerts = {
        state: _alerts_of(kind, state, number, service, tmp_path)
        for number, state in enumerate(("faulty", "sound"), start=1)
    }

    assert rule in alerts["faulty"]
    assert alerts["sound"] == []


def _alerts_of(kind: str, state: str, number: int, service: RealService, folder: Path) -> list[str]:
    """The rules of a training's warnings and pages."""
    spool = folder / f"spool-{number}"
    watched = watched_by(service, number=number)
    environment = {**os.environ, "RUNWATCH_SPOOL": str(spool), **watched}
    trained = subprocess.run(
        [sys.executable, str(_PROGRAM), kind, state],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment,
        check=False,
    )
    assert trained.returncode == 0, trained.stderr.decode()
    bring_in(spool, environment)  # what did not arrive in the ten seconds that a run's end waits
    found = service.judged_alerts(watched["RUNWATCH_RUN_ID"])
    return [alert["rule"] for alert in found if alert["severity"] != "info"]
