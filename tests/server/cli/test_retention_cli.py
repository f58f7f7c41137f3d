"""`runwatch retention` against a service: what is said is shown, and a run is pinned and let go."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.end_to_end.real_service import RealService
from tests.faults.sender import Sender
from typer.testing import CliRunner

from runwatch_server.cli.retention import app

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    with RealService(tmp_path_factory.mktemp("service")) as running:
        yield running


def told(service: RealService, *arguments: str) -> Any:
    where = ("--url", service.url, "--token", service.admin_key, "--json")
    result = CliRunner().invoke(app, [*arguments, *where])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_what_is_said_of_a_project_and_of_a_run_is_shown(service: RealService) -> None:
    run_id = Sender.open(service.url, service.create_key("ingest")).run_id

    told(service, "set", "vision", "--raw-days", "7", "--evidence-days", "0")
    said = told(service, "show")
    pinned = told(service, "pin", run_id)
    let_go = told(service, "pin", run_id, "--off")

    ages = {"raw_days": 7.0, "evidence_days": 0.0, "rollup_days": None}
    assert said["projects"] == [{"project": "vision", "ages": ages}]
    assert (pinned["pinned"], let_go["pinned"]) == (True, False)
    assert told(service, "due") == {"runs": [], "held": []}


def test_the_table_says_days_in_words(service: RealService) -> None:
    told(service, "set", "vision", "--raw-days", "7", "--evidence-days", "0")
    where = ("--url", service.url, "--token", service.admin_key)

    shown = CliRunner().invoke(app, ["show", *where])
    due = CliRunner().invoke(app, ["due", *where])

    (line,) = [line for line in shown.output.splitlines() if "vision" in line]
    assert [cell.strip() for cell in line.split("│")[2:5]] == ["7 days", "for ever", "inherited"]
    assert "Nothing is due for removal." in due.output


def test_what_was_set_is_said_with_its_name_and_the_rest_once(service: RealService) -> None:
    where = ("--url", service.url, "--token", service.admin_key)
    some = CliRunner().invoke(
        app, ["set", "own", "--raw-days", "1", "--evidence-days", "0", *where]
    )
    none = CliRunner().invoke(app, ["set", "own", *where])

    told = "own: frames 1 day, frames around alerts for ever, the rest as set for the service.\n"
    assert (some.output, none.output) == (told, "own: all as set for the service.\n")
