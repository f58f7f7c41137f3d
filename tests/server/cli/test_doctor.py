"""`runwatch doctor` against a real service."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.real_service import RealService

pytestmark = pytest.mark.slow


def doctor(folder: Path, **variables: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit code, and the findings by their names."""
    done = subprocess.run(
        [sys.executable, "-m", "runwatch_server.cli", "doctor", "--json"],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, {one["name"]: one for one in json.loads(done.stdout)["findings"]}


def test_a_service_and_a_key_that_fit_are_good(tmp_path: Path) -> None:
    service = RealService(tmp_path / "service")
    service.start()
    try:
        key = service.create_key("ingest")
        code, found = doctor(tmp_path, RUNWATCH_URL=service.url, RUNWATCH_TOKEN=key)
        refused, wrong = doctor(tmp_path, RUNWATCH_URL=service.url, RUNWATCH_TOKEN="runwatch_x")
    finally:
        service.stop()

    assert code == 0, found
    assert found[service.url]["found"] == "is ready"
    assert found["key"]["found"] == f"{key.split('_')[1]}, which may ingest"
    assert found["clock"]["verdict"] in (
        "good",
        "note",
    )  # a machine may be slow, and its clock is one
    assert found["hook"]["verdict"] == "good"
    assert refused == 1
    assert wrong["key"]["verdict"] == "wrong"


def test_a_service_that_is_asked_for_and_away_is_wrong(tmp_path: Path) -> None:
    code, found = doctor(tmp_path, RUNWATCH_URL="http://127.0.0.1:9", RUNWATCH_TOKEN="t")

    assert code == 1
    assert found["http://127.0.0.1:9"]["verdict"] == "wrong"
    assert "runwatch serve" in found["http://127.0.0.1:9"]["advice"]
