"""`runwatch alerts`: whose each alert is."""

from pathlib import Path

import pytest
from tests.end_to_end.real_service import RealService
from tests.page.sent_run import SentRun
from typer.testing import CliRunner

from runwatch_server.cli.app import app

pytestmark = pytest.mark.slow


def test_an_alert_stands_under_its_run_s_name(tmp_path: Path) -> None:
    with RealService(tmp_path) as service:
        run = SentRun(service, "small gpt, warm restart")
        run.send([2.0] * 10 + ["NaN"] * 3)
        run.wait_for_alert("NonFinite")
        reach = ["--url", service.url, "--token", service.admin_key]
        shown = CliRunner().invoke(app, ["alerts", *reach])
        narrow = CliRunner().invoke(app, ["alerts", *reach], env={"COLUMNS": "80"})

    (row,) = (line for line in shown.stdout.splitlines() if "NonFinite" in line)
    assert [cell.strip() for cell in row.split("│")[2:7]] == [
        "small gpt, warm restart",
        "0",
        "NonFinite",
        "critical",
        "firing",
    ]
    head, summary = narrow.stdout.splitlines()
    cells = head.split("  ")
    assert cells[1:] == ["critical", "NonFinite", "step 10", "firing", "small gpt, warm restart"]
    assert row.split("│")[1].strip().startswith(cells[0])
    assert summary.startswith("  loss NaN at step 10")
    assert len(summary) <= 80
