"""The version stands in one place: everything else reads it from there."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import runwatch

ROOT = Path(__file__).parents[2]


def test_the_project_file_takes_the_version_from_the_core() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "watchdog/runwatch/__init__.py"


def test_the_installed_package_bears_the_version_of_the_source() -> None:
    assert metadata.version("runwatch") == runwatch.__version__


def test_no_other_source_file_spells_the_version() -> None:
    spelled = re.compile(rf'"{re.escape(runwatch.__version__)}"')
    sources = [
        path
        for root in ("watchdog", "hooks", "server", "migrations")
        for path in (ROOT / root).rglob("*.py")
    ]
    found = [path for path in sources if spelled.search(path.read_text(encoding="utf-8"))]
    assert found == [ROOT / "watchdog/runwatch/__init__.py"]


def test_the_newest_entry_of_the_changelog_is_the_version_or_unreleased() -> None:
    headings = re.findall(
        r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M
    )
    assert headings[0] in ("Unreleased", runwatch.__version__)
