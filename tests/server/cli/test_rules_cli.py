"""`runwatch rules`, `alerts` and `signal` from a shell."""

import json
from pathlib import Path

from typer.testing import CliRunner

from runwatch_server.cli.app import app

GOOD = """\
version: 1
groups:
- name: mine
  rules:
  - {alert: Low, scope: run, when: loss < 1}
"""


def test_a_good_file_is_in_order(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(GOOD)
    result = CliRunner().invoke(app, ["rules", "check", str(file)])

    assert result.exit_code == 0
    assert "rules found: 1" in result.output


def test_every_fault_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(GOOD.replace("loss < 1", "loss <").replace("alert: Low, ", ""))
    result = CliRunner().invoke(app, ["rules", "check", str(file)])

    assert result.exit_code == 1
    assert result.output.count("line 5, groups[0].rules[0]") >= 2


def test_programs_get_the_same_facts(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("version: 1\ngroups:\n- name: g\n  rules:\n  - {alert: A, when: loss >}\n")

    result = CliRunner().invoke(app, ["rules", "check", "--json", str(file)])

    told = json.loads(result.stdout)
    assert (result.exit_code, told["valid"], told["rules"]) == (1, False, [])
    assert told["faults"][0]["line"] == 5


def test_a_file_of_bytes_is_no_rule_file(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_bytes(b"\xff\xfe\x00v")
    result = CliRunner().invoke(app, ["rules", "check", str(file)])

    assert result.exit_code == 1
    assert "rules.yaml: file: found invalid UTF-8 at byte 0, wanted text" in result.output


def test_a_name_that_the_service_would_refuse_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(GOOD.replace("Low", "RunLost"))
    result = CliRunner().invoke(app, ["rules", "check", str(file)])

    assert result.exit_code == 1
    assert "found RunLost, which the service itself judges" in result.output


def test_lower_lr_asks_for_its_scale() -> None:
    result = CliRunner().invoke(app, ["signal", "RUN", "lower-lr", "--url", "http://127.0.0.1:9"])

    assert result.exit_code == 2
    assert "--scale" in result.output


def test_a_service_that_is_not_there_is_said_so() -> None:
    nowhere = ["--url", "http://127.0.0.1:9", "--token", "x"]
    result = CliRunner().invoke(app, ["signal", "RUN", "checkpoint", *nowhere])

    assert result.exit_code == 2
    assert "does not answer" in result.output
