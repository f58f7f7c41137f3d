"""The built-in rules, by the tests that are written as data in tests/rules."""

from pathlib import Path

import pytest
import yaml

from runwatch.rules import NON_FINITE, Rule, load_rules
from runwatch.rules.rule_tests import RuleTest, load_rule_tests, run_rule_tests

ROOT = Path(__file__).parents[3]
PACK = ROOT / "server" / "runwatch_server" / "rules" / "builtin.yaml"


def pack() -> tuple[Rule, ...]:
    return load_rules(yaml.safe_load(PACK.read_text()))


def cases() -> list[tuple[Path, int, str]]:
    files = sorted((ROOT / "tests" / "rules").glob("*.yaml"))
    tests: list[tuple[Path, int, RuleTest]] = [
        (file, index, test)
        for file in files
        for index, test in enumerate(load_rule_tests(yaml.safe_load(file.read_text())))
    ]
    return [(file, index, test.name) for file, index, test in tests]


@pytest.mark.parametrize(("file", "index", "name"), cases(), ids=lambda part: str(part)[-60:])
def test_the_pack_does_what_its_test_says(file: Path, index: int, name: str) -> None:
    document = yaml.safe_load(file.read_text())

    (result,) = run_rule_tests({"tests": [document["tests"][index]]}, pack())

    assert result.failures == (), name


@pytest.mark.parametrize("rule", [NON_FINITE, *pack()], ids=lambda rule: rule.name)
def test_a_built_in_rule_says_what_it_saw_why_and_what_to_do(rule: Rule) -> None:
    assert rule.summary.text
    assert "Likely causes" in rule.description.text
    assert "worked if" in rule.description.text
    assert (ROOT / rule.runbook).is_file()
