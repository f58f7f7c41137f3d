"""`runwatch backtest`, `rules test` and `import` from a shell."""

import json
import math
import os
from pathlib import Path

import pytest
from tests.server.cli.test_serve import Served
from typer.testing import CliRunner, Result

from runwatch_server.cli.app import app
from runwatch_server.importing import read_run_log

ROOT = Path(__file__).parents[3]
RULES = """\
version: 1
groups:
- name: mine
  rules:
  - {alert: Low, when: loss < 1, severity: info}
"""
TESTS = """\
rule_files: [rules.yaml]
tests:
- name: it fires
  series: {loss: '2x3 0.5'}
  expect:
  - {step: 3, alerts: [{rule: Low, state: STATE}]}
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "run.csv"
    losses = [2.0, 1.5, 0.5, math.nan, *([2.0] * 30)]
    file.write_text("\n".join(["step,loss", *(f"{s},{v}" for s, v in enumerate(losses))]))
    return file


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_json_holds_exactly_what_is_promised(log: Path, rules: Path) -> None:
    result = call("backtest", log, "--rules", rules, "--json")

    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "runs": [
            {
                "file": str(log),
                "rows": 34,
                "alerts": [
                    {
                        "alert": "Low",
                        "severity": "info",
                        "labels": {},
                        "pending_step": 2,
                        "firing_step": 2,
                        "resolved_step": 3,
                        "value": 0.5,
                        "inhibited_by": None,
                        "shadow": False,
                    },
                    {
                        "alert": "NonFinite",
                        "severity": "critical",
                        "labels": {},
                        "pending_step": 3,
                        "firing_step": 3,
                        "resolved_step": 24,
                        "value": "NaN",
                        "inhibited_by": None,
                        "shadow": False,
                    },
                ],
                "lead_steps": 1,
                "lead_s": None,
            }
        ],
        "summary": {
            "runs": 1,
            "runs_with_alerts": 1,
            "alerts": 2,
            "pages": 1,
            "inhibited": 0,
            "shadow": 0,
            "days": None,
            "pages_a_day": None,
            "alerts_a_day": None,
        },
    }


@pytest.mark.parametrize(("seconds_a_step", "is_told"), [(1, False), (600, True)])
def test_pages_a_day_are_told_of_an_hour_or_more(
    tmp_path: Path, rules: Path, seconds_a_step: int, is_told: bool
) -> None:
    path = tmp_path / "timed.jsonl"
    losses = [1.0] * 20 + [9.0]
    path.write_text(
        "".join(
            f'{{"step": {step}, "loss": {loss}, "_timestamp": {1.7e9 + seconds_a_step * step}}}\n'
            for step, loss in enumerate(losses)
        )
    )

    told = call("backtest", path, "--rules", rules).output

    assert "0 pages among them" in told
    assert ("pages a day over" in told) is is_told


def test_only_the_severities_asked_for_are_told(log: Path, rules: Path) -> None:
    result = call("backtest", log, "--rules", rules, "--json", "--severity", "critical")

    (run,) = json.loads(result.stdout)["runs"]
    assert [alert["alert"] for alert in run["alerts"]] == ["NonFinite"]


def test_a_broken_file_is_named_and_the_others_go_on(log: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.csv"
    broken.write_text("step,loss\n0,1\n1,oops\n")
    result = call("backtest", broken, log)

    assert result.exit_code == 1
    assert f"{broken}: line 3: loss: found 'oops'" in result.stderr
    assert "NonFinite at step 3" in result.stdout
    assert "1 of 1 run with alerts" in result.stdout


def test_a_log_of_which_no_rule_reads_a_word_is_told(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("step,lss\n0,1\n1,2\n")
    result = call("backtest", other, log)

    assert result.exit_code == 0
    said = [line for line in result.stderr.splitlines() if "no rule reads" in line]
    assert [line.split(": ")[0] for line in said] == [str(other)]
    assert "found lss, which no rule reads; wanted loss, " in said[0]


def test_nothing_to_judge_is_wrong_use() -> None:
    assert call("backtest").exit_code == 2


def test_the_packs_own_tests_pass() -> None:
    """Two files of them: `tests/core/rules/test_builtin_rules.py` runs all."""
    files = [f"builtin_{name}.yaml" for name in ("loop", "nonfinite")]
    result = call("rules", "test", *(ROOT / "tests" / "rules" / name for name in files))

    assert result.exit_code == 0, result.output
    assert " 0 failed" in result.stdout


def test_a_test_that_fails_shows_what_was_found_and_wanted(rules: Path) -> None:
    file = rules.with_name("tests.yaml")
    file.write_text(TESTS.replace("STATE", "pending"))
    result = call("rules", "test", file)

    assert result.exit_code == 1
    assert "FAILED it fires" in result.stdout
    assert "Low: found firing, wanted pending" in result.stdout


def test_a_file_of_tests_names_its_rules_beside_it(rules: Path) -> None:
    file = rules.with_name("tests.yaml")
    file.write_text(TESTS.replace("STATE", "firing"))

    assert call("rules", "test", file).exit_code == 0


def test_a_broken_file_of_tests_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "tests.yaml"
    file.write_text("tests:\n- name: x\n  series: {loss: 1y5}\n")
    result = call("rules", "test", file)

    assert result.exit_code == 2
    assert "line 3, tests[0].series.loss" in result.stderr


def test_a_file_whose_name_is_no_utf8_is_judged_and_told(log: Path, tmp_path: Path) -> None:
    file = log.rename(tmp_path / os.fsdecode(b"\xff.csv"))
    result = call("backtest", file, "--json")

    assert result.exit_code == 0
    assert json.loads(result.stdout)["runs"][0]["file"] == f"{tmp_path}/?.csv"
    assert read_run_log(file).name == "?"


@pytest.mark.parametrize(
    "arguments",
    [
        ("import", "LOG", "--name", "\udcff", "--project", "\udcff"),
        ("backtest", "--run", "\udcff"),
        ("keys", "create", "\udcff", "--scope", "read"),
        ("alerts", "--project", "\udcff"),
    ],
)
def test_what_is_no_utf8_among_what_was_typed_ends_no_command_in_a_traceback(
    log: Path, arguments: tuple[str, ...]
) -> None:
    typed = [str(log) if argument == "LOG" else argument for argument in arguments]
    result = call(*typed, "--url", "http://127.0.0.1:9")

    assert (result.exit_code, type(result.exception)) == (2, SystemExit)
    assert "found text that is not UTF-8" in result.stderr or typed[0] == "import"


@pytest.mark.slow
def test_an_imported_run_is_there_once_and_brings_the_same_alerts(
    log: Path, tmp_path: Path
) -> None:
    served = Served(tmp_path / "data", tmp_path / "serve.log")
    try:
        to_service = ["--url", served.url, "--token", served.admin_key]
        first = call("import", log, *to_service)
        again = call("import", log, *to_service)
        (run,) = json.loads(call("runs", "--json", *to_service).stdout)["runs"]
        stored = call("backtest", "--run", run["name"], "--json", *to_service)
        pack = call("backtest", "--run", run["id"], "--rules", "builtin", "--json", *to_service)
    finally:
        served.stop()

    in_file = json.loads(call("backtest", log, "--json").stdout)["runs"][0]
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert f"run {run['id']}, 34 rows" in first.stdout
    assert "all of it was there already" in again.stdout
    assert (run["state"], run["name"], run["last_step"]) == ("finished", "run", 33)
    assert json.loads(stored.stdout)["runs"][0]["alerts"] == in_file["alerts"]
    assert json.loads(stored.stdout)["summary"]["days"] is None  # the log has no times
    assert json.loads(pack.stdout)["runs"][0]["alerts"] == in_file["alerts"]
