"""The interface answers as docs/openapi.json says, whatever it is asked.

schemathesis throws requests made of the document, well formed and broken, at a real service with
runs and alerts in it.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.end_to_end.real_service import RealService
from tests.page.seeding import Sender, send_healthy, send_nan

pytestmark = [pytest.mark.heavy, pytest.mark.slow]

CHECKS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
    "ignored_auth",
)
"""All but `positive_data_acceptance`: no schema can say that a run with this id must exist."""
NEVER_ENDING: Final = ".*(stream|commands/next)$"
STARTS_A_TRAINING: Final = "/api/v1/demo-run"


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealService]:
    """With something to find, and without limits of requests: here one asker is in a hurry."""
    for limit in ("REQUESTS", "INGEST", "REFUSED"):
        monkeypatch.setenv(f"RUNWATCH_{limit}_PER_S", "1000000")
    service = RealService(tmp_path / "service")
    service.start()
    try:
        sender = Sender(service.url, service.admin_key)
        send_healthy(sender)
        send_nan(sender, "broken", num_layers=12)
        yield service
    finally:
        service.stop()


def test_every_route_answers_as_it_is_described(service: RealService, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("schemathesis")
    arguments = [
        *("run", f"{service.url}/openapi.json"),
        *("--header", f"Authorization: Bearer {service.admin_key}"),
        *("--exclude-path-regex", NEVER_ENDING, "--exclude-path", STARTS_A_TRAINING),
        *("--checks", ",".join(CHECKS), "--phases", "coverage,fuzzing", "--max-examples", "2"),
        *("--seed", "1", "--no-shrink", "--continue-on-failure", "--request-timeout", "60"),
        *("--suppress-health-check", "all", "--warnings", "off"),
    ]
    done = subprocess.run(
        [program, *arguments],
        cwd=tmp_path,
        env=os.environ | {"NO_COLOR": "1", "COLUMNS": "100"},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " 0 tested" not in done.stdout
    assert "Traceback" not in service.log.read_text()
