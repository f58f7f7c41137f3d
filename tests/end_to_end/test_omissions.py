"""Real trainings that leave something out, each beside its sound twin, judged by a real service."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.end_to_end.real_service import BY_THE_CLOCK, NOBODY_IS_MISSED, RealService
from tests.end_to_end.trainer import bring_in, watched_by
from tests.forking import TRAINER, fork
from tests.waiting import LONGEST_S

pytestmark = pytest.mark.heavy

_NUMBERS: Final = itertools.count(1)
_PROGRAM: Final = Path(__file__).with_name("omitting_program.py")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    folder = tmp_path_factory.mktemp("service")
    with RealService(folder, environment=NOBODY_IS_MISSED) as running:
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
    alerts = {state: _alerts_of(kind, state, service, tmp_path) for state in ("faulty", "sound")}

    assert rule in alerts["faulty"]
    assert alerts["sound"] == []


def _alerts_of(kind: str, state: str, service: RealService, folder: Path) -> list[str]:
    """The rules of a training's warnings and pages, but for those of its speed."""
    spool = folder / f"spool-{state}"
    watched = watched_by(service, number=next(_NUMBERS))
    environment = {**os.environ, "RUNWATCH_SPOOL": str(spool), **watched}
    output = folder / f"output-{state}.txt"
    trained = fork(TRAINER, str(_PROGRAM), [kind, state], output=output, environment=environment)
    assert trained.wait(LONGEST_S) == 0, output.read_text()
    bring_in(spool, environment)  # what did not arrive in the ten seconds that a run's end waits
    found = service.judged_alerts(watched["RUNWATCH_RUN_ID"])
    told = [alert["rule"] for alert in found if alert["severity"] != "info"]
    return [rule for rule in told if rule not in BY_THE_CLOCK]
