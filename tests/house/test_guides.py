"""What the guides let a reader type is carried out."""

from pathlib import Path

import pytest
from tests.house import documents
from tests.house.documents import ROOT
from typer.testing import CliRunner

from runwatch_server.cli.app import app


def test_the_rule_of_the_guide_is_good_and_its_tests_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = ROOT / "docs" / "how-to" / "own-rules.md"
    rule, tests = [block.text for block in documents.blocks("yaml") if block.page == guide]
    (tmp_path / "mine.yaml").write_text(rule, encoding="utf-8")
    (tmp_path / "mine_test.yaml").write_text(tests, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    checked = CliRunner().invoke(app, ["rules", "check", "mine.yaml"])
    tested = CliRunner().invoke(app, ["rules", "test", "mine_test.yaml"])

    assert checked.exit_code == 0, checked.output
    assert tested.exit_code == 0, tested.output
    assert "2 tests, 0 failed" in tested.output


def test_every_page_is_led_to_by_another() -> None:
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in documents.pages()
        for target in documents.links(page)
        if (page.parent / target).resolve() != page
    }
    runbooks = ROOT / "docs" / "runbooks"
    pages = {page for page in (ROOT / "docs").rglob("*.md") if runbooks not in page.parents}

    assert pages - linked <= {ROOT / "docs" / "index.md"}
