"""A real trainer whose evaluation hangs: told by its name, by how long it lasted before."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.end_to_end.real_service import RealService
from tests.end_to_end.trainer import watched_by
from tests.forking import TRAINER, fork
from tests.waiting import until

pytestmark = pytest.mark.heavy

_PROGRAM: Final = Path(__file__).with_name("evaluating_program.py")
_RULE: Final = {
    "alert": "EvaluationHangs",
    "absence": {
        "timeout_s": 3.0,
        "times_longest": 5.0,
        "by_phase": True,
        "phases": {"train": 0, "init": 0, "eval": 100},
    },
    "annotations": {"summary": "{phase} has lasted {value:.0f} s after step {step}"},
}
"""The built-in PhaseOverdue, but for seconds where that waits for a minute."""


@pytest.fixture
def trainer(tmp_path: Path, service: RealService) -> Iterator[dict[str, str]]:
    """The environment of a training that hangs in an evaluation; it ends with the test."""
    service.start()
    rules = {"version": 1, "groups": [{"name": "tests", "rules": [_RULE]}]}
    service.ask("POST", "/rules", rules)
    environment = watched_by(service, number=1)
    spool = {"RUNWATCH_SPOOL": str(tmp_path / "spool")}
    process = fork(
        TRAINER,
        str(_PROGRAM),
        [],
        output=tmp_path / "output.txt",
        environment={**os.environ, **spool, **environment},
    )
    try:
        yield environment
    finally:
        process.kill()
        process.wait()


def test_an_evaluation_that_hangs_is_told_with_its_name_and_the_service_may_restart(
    service: RealService, trainer: dict[str, str]
) -> None:
    run_id = trainer["RUNWATCH_RUN_ID"]
    until(lambda: service.ask("GET", f"/runs/{run_id}")["last_step"] == 24)
    service.kill()
    service.start()

    asked = f"/alerts?run_id={run_id}&rule={_RULE['alert']}"
    [alert] = until(  # one that took long on a busy machine, before, may have been told, too
        lambda: [a for a in service.ask("GET", asked)["alerts"] if a["onset_step"] == 24]
    )

    assert alert["summary"].startswith("eval has lasted ")
