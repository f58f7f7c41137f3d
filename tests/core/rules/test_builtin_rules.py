"""The built-in rules, by the tests that are written as data in tests/rules."""

import re
from pathlib import Path

import numpy as np
import pytest
from tests.core.rules.builtin_pack import ROOT, document_of, pack

from runwatch.alerts import AlertState
from runwatch.rules import IN_CODE, Evaluator, Rows, Rule
from runwatch.rules.rule_tests import RuleTest, load_rule_tests, run_rule_tests
from runwatch_server.alerts.absence.rules import rank_lost, run_lost
from runwatch_server.alerts.failures.rule import FAILED, REPLACED
from runwatch_server.alerts.groups.outlier import RULE as GROUP_OUTLIER


def cases() -> list[tuple[Path, int, str]]:
    files = sorted((ROOT / "tests" / "rules").glob("*.yaml"))
    tests: list[tuple[Path, int, RuleTest]] = [
        (file, index, test)
        for file in files
        for index, test in enumerate(load_rule_tests(document_of(file)))
    ]
    return [(file, index, test.name) for file, index, test in tests]


@pytest.mark.parametrize(("file", "index", "name"), cases(), ids=lambda part: str(part)[-60:])
def test_the_pack_does_what_its_test_says(file: Path, index: int, name: str) -> None:
    test = document_of(file)["tests"][index]
    (result,) = run_rule_tests({"tests": [test]}, pack())

    assert result.failures == (), name


@pytest.mark.parametrize("rule", [*IN_CODE, *pack()], ids=lambda rule: rule.name)
def test_a_built_in_rule_says_what_it_saw_why_and_what_to_do(rule: Rule) -> None:
    assert rule.summary.text
    assert len(rule.diagnosis.causes) >= 2
    assert rule.diagnosis.try_first.text
    assert rule.diagnosis.worked_if.text


def rules_with_runbooks() -> tuple[Rule, ...]:
    return (*IN_CODE, run_lost(60), rank_lost(60), FAILED, REPLACED, GROUP_OUTLIER, *pack())


def test_no_summary_speaks_of_one_layers_or_of_none() -> None:
    counts = ("{num_layers} layers", "{value:.0f} layers")
    wrong = [rule.name for rule in pack() if any(one in rule.summary.text for one in counts)]

    assert wrong == []


@pytest.mark.parametrize("rule", rules_with_runbooks(), ids=lambda rule: rule.name)
def test_a_built_in_rule_has_a_runbook_that_is_about_it(rule: Rule) -> None:
    page = (ROOT / rule.runbook).read_text()

    assert page.startswith(f"# {rule.name}\n\nSeverity: {rule.severity.value}.\n\n")
    headings = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    wanted = ["A false alarm?", "What to do", "For the next run", "It worked if"]
    assert sorted(heading for heading in headings if heading in wanted) == sorted(wanted)


def test_every_runbook_belongs_to_one_rule_and_links_to_pages_that_exist() -> None:
    pages = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
    of_rules = [page for page in pages if page.name != "service.md"]  # about the service itself
    runbooks = sorted(ROOT / rule.runbook for rule in rules_with_runbooks())
    links = [link for page in pages for link in re.findall(r"\]\(([^)]+)\)", page.read_text())]

    assert of_rules == runbooks
    assert links
    paths = [path for link in links if (path := link.partition("#")[0])]  # others stay on the page
    assert all((ROOT / "docs" / "runbooks" / path).is_file() for path in paths)


def test_the_tests_as_data_show_every_rule_with_a_condition_firing() -> None:
    documents = [document_of(file) for file in (ROOT / "tests/rules").glob("*.yaml")]
    fires = {
        alert["rule"]
        for document in documents
        for test in document["tests"]
        for expected in test.get("expect", [])
        for alert in expected["alerts"]
        if alert["state"] == "firing"
    }

    assert {rule.name for rule in (*IN_CODE, *pack()) if rule.absence is None} <= fires


@pytest.mark.parametrize(
    ("rule", "now", "before", "said"),
    [
        ("ScheduleNotRestored", {"lr": 0.004}, {"lr_before": 0.001}, "learning rate 0.004 after"),
        (
            "WorseAfterResume",
            {"loss": 3.5},
            {"step_before": 5000.0, "loss_before": 2.0, "loss_mad_before": 0.1},
            "loss about 3.5 after",
        ),
    ],
)
def test_what_a_restart_lost_is_told_with_its_own_number(
    rule: str, now: dict[str, float], before: dict[str, float], said: str
) -> None:
    """The value of a rule is that of its first comparison, which is not about the step."""
    known = now | before
    rows = Rows(
        steps=np.arange(5000, 5016),
        times=np.arange(16.0),
        metric_names=tuple(known),
        metrics=np.tile(np.array(list(known.values())), (16, 1)),
        layer_names=(),
        stat_names=(),
        stats=np.empty((16, 0, 0), np.float32),
    )

    told = [one for one in Evaluator(pack()).observe(rows) if one.rule == rule]

    assert told[-1].state is AlertState.FIRING
    assert told[-1].summary.startswith(said)
