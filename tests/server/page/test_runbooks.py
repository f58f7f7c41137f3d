"""Runbooks: found by name, shown without markup of their own, linked from alerts."""

import pytest
from tests.server.harness import Api

from runwatch_server.page.markdown import to_html
from runwatch_server.runbooks import first_sentence, read_runbook, runbook_names, runbook_url


@pytest.mark.anyio
async def test_every_built_in_rule_s_runbook_is_there(api: Api) -> None:
    rules = [filed.rule for filed in api.services.rules.builtin]

    missing = [rule.name for rule in rules if rule.runbook and not runbook_url(rule.runbook)]

    assert missing == []
    assert len(rules) > 20


@pytest.mark.parametrize("name", ["../runbooks/non-finite", "non-finite.md", "", "*"])
def test_a_name_is_no_path(name: str) -> None:
    assert read_runbook(name) is None


def test_links_between_runbooks_lead_to_their_pages() -> None:
    html = to_html("[spike](gradient-spike.md) [out](https://example.org/a.md)")

    assert 'href="/runbooks/gradient-spike"' in html
    assert 'href="https://example.org/a.md"' in html


def test_markup_in_a_runbook_is_shown_as_text() -> None:
    html = to_html("<script>alert(1)</script>\n\n[x](javascript:alert(1))")

    assert "<script>" not in html
    assert "href" not in html


@pytest.mark.parametrize(
    ("annotation", "url"),
    [
        ("docs/runbooks/non-finite.md", "https://us/runbooks/non-finite"),
        ("docs/runbooks/no-such.md", ""),
        ("https://wiki/our-way", "https://wiki/our-way"),
        ("javascript:alert(1)", ""),
        ("", ""),
    ],
)
def test_an_annotation_becomes_an_address(annotation: str, url: str) -> None:
    assert runbook_url(annotation, "https://us") == url


def test_all_names_are_known() -> None:
    assert "non-finite" in runbook_names()


@pytest.mark.anyio
async def test_every_built_in_rule_says_in_a_sentence_what_it_sees(api: Api) -> None:
    rules = [filed.rule for filed in api.services.rules.builtin]

    told = {rule.name: first_sentence(rule.runbook) for rule in rules}

    assert [name for name, sentence in told.items() if not sentence.endswith(".")] == []
    assert [name for name, sentence in told.items() if "](" in sentence or "`" in sentence] == []
    assert told["LossFrozen"] == (
        "The loss was the same number, to the last digit, three rows in a row, "
        "though it moved at every row before."
    )


@pytest.mark.parametrize("annotation", ["", "docs/runbooks/no-such.md", "https://wiki/our-way"])
def test_of_a_runbook_that_is_none_of_ours_nothing_is_said(annotation: str) -> None:
    assert first_sentence(annotation) == ""
