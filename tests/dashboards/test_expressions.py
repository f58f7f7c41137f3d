"""Every expression of the dashboards and rules, asked of a real Prometheus over a real service."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.dashboards.compose import ROOT
from tests.dashboards.stack import RULES, Stack, on_this_machine

from runwatch.vocabulary import RunId

PAGES: Final = sorted((ROOT / "dashboards/grafana/dashboards").glob("*.json"))

QUIET: Final = {
    "runwatch_receiver_": "the stack tells an Alertmanager and no receiver of its own",
    "runwatch_deliveries": "likewise",
    'runwatch_run_state{state="failed"}': "no run has failed",
}
"""Series that are rightly empty while a service is well, by how they begin."""


def panels(page: Path) -> Iterator[Any]:
    yield from json.loads(page.read_text())["panels"]


def expressions_of_dashboards() -> list[tuple[str, str]]:
    return [
        (f"{page.stem}: {panel['title']}", target["expr"])
        for page in PAGES
        for panel in panels(page)
        for target in panel.get("targets", ())
    ]


def rules(kind: str) -> list[tuple[str, str]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [
        (rule[kind], rule["expr"]) for group in groups for rule in group["rules"] if kind in rule
    ]


def operands(expression: str) -> list[str]:
    """Both sides of an alert's comparisons: what must give data for it ever to fire."""
    sides = re.split(r"\s+(?:==|>|<)\s+[\d.]+|\s+(?:and|or)\s+", expression)
    return [side for side in map(str.strip, sides) if side]


needs_prometheus = [pytest.mark.heavy, on_this_machine]


def heavy(cases: list[tuple[str, str]]) -> list[Any]:
    return [pytest.param(*case, marks=needs_prometheus, id=case[0]) for case in cases]


def check_gives_data(stack: Stack, expression: str) -> None:
    if any(name in expression for name in QUIET):
        assert stack.query(expression) == []
        return
    stack.until(lambda: bool(stack.query(expression)), f"{expression} gives nothing")


@pytest.mark.parametrize(("name", "expression"), heavy(expressions_of_dashboards()))
def test_every_panel_gives_data(
    stack: Stack, broken_run: RunId, name: str, expression: str
) -> None:
    check_gives_data(stack, expression.replace("$run_id", broken_run))


@pytest.mark.heavy
@on_this_machine
def test_a_run_is_chosen_by_its_name(stack: Stack, broken_run: RunId) -> None:
    """Grafana takes apart by its own expression what it makes of an answer to `query_result`."""
    _, variable = json.loads((PAGES[0].parent / "run.json").read_text())["templating"]["list"]
    asked = re.fullmatch(r"query_result\((.*)\)", variable["query"]["query"])
    assert asked is not None
    expression = re.compile(variable["regex"].strip("/").replace("(?<", "(?P<"))

    check_gives_data(stack, asked.group(1))
    (found,) = stack.query(asked.group(1))

    labels = ",".join(f'{name}="{value}"' for name, value in found["metric"].items())
    chosen = expression.search(f"{{{labels}}} 1 1700000000000")
    assert chosen is not None
    assert chosen.groupdict() == {"text": f"broken {broken_run}", "value": broken_run}


@pytest.mark.parametrize(("name", "expression"), heavy(rules("record")))
@pytest.mark.usefixtures("broken_run")
def test_every_recorded_series_gives_data(stack: Stack, name: str, expression: str) -> None:
    check_gives_data(stack, expression)
    check_gives_data(stack, name)


@pytest.mark.parametrize(("name", "expression"), heavy(rules("alert")))
@pytest.mark.usefixtures("broken_run")
def test_every_alert_about_the_service_rests_on_data(
    stack: Stack, name: str, expression: str
) -> None:
    """The comparison is taken off: a service that is well raises none of them."""
    for operand in operands(expression):
        if "absent(" not in operand and "offset" not in operand:
            check_gives_data(stack, operand)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_dashboard_is_whole(page: Path) -> None:
    document = json.loads(page.read_text())
    ids = [panel["id"] for panel in document["panels"]]
    datasources = {json.dumps(panel["datasource"]) for panel in panels(page) if "targets" in panel}
    named = re.findall(r"\$\{?(\w+)", " ".join(expr for _, expr in expressions_of_dashboards()))

    assert len(set(ids)) == len(ids)
    assert datasources == {'{"type": "prometheus", "uid": "${datasource}"}'}
    assert set(named) == {"run_id"}
    assert not overlaps([panel["gridPos"] for panel in document["panels"]])


def overlaps(places: list[dict[str, int]]) -> bool:
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    return len(set(cells)) < len(cells) or max(x for x, _ in cells) > 23


def test_links_between_dashboards_lead_somewhere() -> None:
    texts = [page.read_text() for page in PAGES]
    uids = {json.loads(text)["uid"] for text in texts}

    assert uids == {"runwatch-fleet", "runwatch-run", "runwatch-service"}
    assert {uid for text in texts for uid in re.findall(r'"/d/([\w-]+)', text)} == uids


def test_every_metric_in_use_is_documented() -> None:
    page = (ROOT / "docs/metrics.md").read_text()
    documented = set(re.findall(r"^\| `(\w+)`", page, re.M))
    used = {
        name
        for _, expr in (*expressions_of_dashboards(), *rules("record"), *rules("alert"))
        for name in re.findall(r"\b(?:runwatch|process)_\w+", expr)
    }

    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in used} - documented == set()


def test_every_alert_says_what_to_do() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    runbook = (ROOT / "docs/runbooks/service.md").read_text()

    assert len(alerts) > 10
    for rule in alerts:
        assert f"## {rule['alert']}\n" in runbook
        anchor = f"docs/runbooks/service.md#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook"] == anchor
        assert rule["labels"]["severity"] in ("warning", "critical")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on this machine")
@pytest.mark.parametrize(
    "command",
    [
        ["check", "rules", "dashboards/prometheus-rules.yml"],
        ["test", "rules", "tests/dashboards/prometheus-rules.test.yml"],
    ],
    ids=" ".join,
)
def test_promtool_takes_the_rules(command: list[str]) -> None:
    checked = subprocess.run(
        ["promtool", *command], cwd=ROOT, capture_output=True, check=False, text=True
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
