"""The pages of docs/reference are those of this commit."""

import re
from typing import Final

import pytest
from tests.house.documents import ROOT
from tests.house.reference.pages import FOLDER, PAGES
from tests.house.test_python_blocks import top_names

import runwatch_hooks
from runwatch.series import METRIC_SPECS, STAT_SPECS
from runwatch_hooks.detail.activation_sums import STATS as OF_ACTIVATIONS
from runwatch_hooks.statistics.totals import STATS

BY_HAND: Final = "python.md"
"""Names whose texts mkdocstrings takes from the code when the site is built."""


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_says_what_the_code_says(name: str) -> None:
    page = (FOLDER / name).read_text(encoding="utf-8")

    assert page == PAGES[name](), "the code changed: run `make docs`"


def test_a_layer_has_the_stats_that_are_described() -> None:
    assert {*STATS, *OF_ACTIVATIONS} == set(STAT_SPECS)


def test_the_metrics_that_are_described_are_those_that_somebody_records_or_rules_read() -> None:
    """Each stands in the hook, in a rule or between them; but those that programs log."""
    sources = [
        path.read_text(encoding="utf-8")
        for root in ("hooks", "watchdog", "server")
        for path in (ROOT / root).rglob("*.*")
        if path.suffix in (".py", ".yaml") and path.name != "series.py"
    ]
    for name, spec in METRIC_SPECS.items():
        is_logged = spec.text.endswith("where a program logs it.")
        assert is_logged or any(re.search(rf"\b{name}\b", source) for source in sources), name


def test_every_python_name_that_the_packages_hand_on_is_in_the_reference() -> None:
    page = (FOLDER / "python.md").read_text(encoding="utf-8")
    described = set(re.findall(r"^::: (\S+)$", page, re.M))
    for place in described:
        module, _, name = place.rpartition(".")
        assert name in top_names(module), place

    handed_on = set(runwatch_hooks.__all__)
    handed_on |= {"open_run", "PlainRun", "connect", "Reading", "RunReading", "History"}
    assert handed_on <= {place.rpartition(".")[2] for place in described}


def test_no_page_is_left_of_what_is_gone() -> None:
    assert {path.name for path in FOLDER.glob("*.md")} == {*PAGES, BY_HAND}
