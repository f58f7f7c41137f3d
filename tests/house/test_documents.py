"""What the documents say exists, and their code can be read."""

import ast
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.house import documents
from tests.house.documents import ROOT, Block
from tests.house.reference.commands import commands, options_of
from tests.house.reference.paths import routes

from runwatch.rules.functions import FUNCTIONS
from runwatch_server.cli.setting_checks import OF_CLIENTS, setting_names

PAGES = documents.pages()
SHELL = ("sh", "bash", "console")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in documents.links(page):
        path, _, anchor = target.partition("#")
        to = page if not path else (page.parent / path).resolve()
        assert to.exists(), f"{name_of(page)}: {target}"
        if anchor and to.suffix == ".md":
            assert anchor in documents.anchors(to), f"{name_of(page)}: {target}"


OF_THE_CODE = [
    page for page in PAGES if re.match(r"CONTRIBUTING|docs/(design|expl)", name_of(page))
]
"""Pages that speak of modules of ours; in others a reader's own file may be named."""


@pytest.mark.parametrize("page", OF_THE_CODE, ids=name_of)
def test_every_module_that_is_named_is_there(page: Path) -> None:
    roots = ("watchdog", "hooks", "server", "migrations", "tests", "benchmarks", "docs")
    there = [f"/{path.relative_to(ROOT)}" for root in roots for path in (ROOT / root).rglob("*")]
    for name in re.findall(r"`((?:\w+/)*\w+\.(?:py|js))`", page.read_text("utf-8")):
        assert any(path.endswith(f"/{name}") for path in there), f"{name_of(page)}: {name}"


@pytest.mark.parametrize("block", documents.blocks("python"), ids=lambda block: block.place)
def test_python_can_be_read(block: Block) -> None:
    ast.parse(block.text, block.place)


@pytest.mark.parametrize("block", documents.blocks("yaml"), ids=lambda block: block.place)
def test_yaml_can_be_read(block: Block) -> None:
    assert list(yaml.safe_load_all(block.text))


@pytest.mark.parametrize("block", documents.blocks("sh", "bash"), ids=lambda block: block.place)
def test_shell_can_be_read(block: Block) -> None:
    read = subprocess.run(
        ["bash", "-n"], input=block.text, capture_output=True, text=True, check=False
    )

    assert read.returncode == 0, read.stderr


def called(text: str) -> list[str]:
    """Calls of `runwatch` in a piece of shell or between backquotes, each up to its end."""
    joined = text.replace("\\\n", " ")
    return re.findall(r"(?:^|[\s$(])runwatch ((?!\w+:)[a-z][^\n|;&`]*)", joined)


def calls() -> list[tuple[str, str]]:
    """(place, words after `runwatch`) of every command that the documents show."""
    shown = [
        (block.place, call)
        for block in documents.blocks(*SHELL, "")
        for call in called("\n".join(line.split("  #")[0] for line in block.text.splitlines()))
    ]
    inline = [
        (name_of(page), code.removeprefix("runwatch "))
        for page in PAGES
        for code in re.findall(r"`(runwatch [a-z][^`\n]*)`", documents.prose(page))
    ]
    return shown + inline


def test_every_command_that_is_shown_is_there_with_its_options() -> None:
    known = dict(commands())
    groups = {name.split()[0] for name in known if " " in name}
    shown = calls()
    assert len(shown) > 20
    for place, call in shown:
        words = call.split()
        name = " ".join(words[: 2 if words[0] in groups and len(words) > 1 else 1])
        if name in groups:
            continue
        for one in _alternatives(name):
            assert one in known, f"{place}: runwatch {call}"
        if known[_alternatives(name)[0]].context_settings.get("ignore_unknown_options"):
            continue  # handed on to another program
        ours = call.split(" -- ")[0] if name == "run" else call
        for option in re.findall(r"(?<!\S)(--[a-z][a-z-]*)", ours):
            known_options = options_of(known[_alternatives(name)[0]]) | {"--help"}
            assert option in known_options, f"{place}: runwatch {call}"


def test_every_command_speaks_to_programs_too() -> None:
    """But those whose output is another program's, or a log."""
    silent = {name for name, command in commands() if "--json" not in options_of(command)}

    assert silent == {"serve", "run", "open", "sync", "replay"}


def _alternatives(name: str) -> list[str]:
    """`rules check|test` is two commands."""
    first, _, second = name.partition(" ")
    return [f"{first} {one}".strip() for one in second.split("|")]


def test_every_variable_that_is_shown_is_read_by_something() -> None:
    known = {*setting_names(), *OF_CLIENTS}
    for page in PAGES:
        for name in re.findall(r"RUNWATCH_[A-Z_]*[A-Z]", page.read_text(encoding="utf-8")):
            assert name in known, f"{name_of(page)}: {name}"


def test_every_variable_that_the_code_reads_is_on_the_page_of_settings() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    for root in ("hooks", "server", "watchdog"):
        for source in (ROOT / root).rglob("*.py"):
            for name in re.findall(r'"(RUNWATCH_[A-Z_]*[A-Z])"', source.read_text("utf-8")):
                assert f"`{name}`" in page, f"{name_of(source)}: {name}"


def test_every_path_that_is_shown_is_one_of_the_interface() -> None:
    known = {re.sub(r"\{[^}]*\}", "{}", path) for _, path, _, _ in routes()}
    for page in PAGES:
        for path in re.findall(r"/api/v1(/[\w/{}.$-]*[\w}])", page.read_text(encoding="utf-8")):
            general = "/api/v1" + re.sub(r"\{[^}]*\}|\$\w+|\b01[0-9A-Z]{24}\b", "{}", path)
            assert general in known, f"{name_of(page)}: {path}"


def test_every_file_of_ours_that_is_named_is_there() -> None:
    for page in PAGES:
        for path in re.findall(
            r"`((?:tests|benchmarks|dashboards)/[\w/.-]+\w)", page.read_text("utf-8")
        ):
            assert (ROOT / path).exists(), f"{name_of(page)}: {path}"


def test_every_test_that_is_named_is_there() -> None:
    """By the end of its path, for pages say once in which folder they look; with its function."""
    there = {f"/{path.relative_to(ROOT)}": path for path in (ROOT / "tests").rglob("test_*.py")}
    for page in PAGES:
        if page.name == "CHANGELOG.md":  # says what was
            continue
        named = re.findall(r"`((?:\w+/)*test_\w+\.py)(?:::(\w+))?`", page.read_text("utf-8"))
        for name, function in named:
            found = [path for end, path in there.items() if end.endswith(f"/{name}")]
            assert found, f"{name_of(page)}: {name}"
            if function:
                texts = [path.read_text("utf-8") for path in found]
                assert any(f"def {function}(" in text for text in texts), f"{name}::{function}"


def test_every_function_of_rules_is_described_and_no_other() -> None:
    page = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    table = page[page.index("| function | worth |") :].split("\n\n")[0]
    cells = " ".join(line.split("|")[1] for line in table.splitlines()[2:])
    described = set(re.findall(r"[a-z_][a-z_0-9]+", re.sub(r"\([^)]*\)", "", cells)))

    assert described == set(FUNCTIONS)


BY_NAME = re.compile(r"pip install ['\"]?runwatch\b")


def test_nothing_of_ours_is_brought_in_by_a_name_that_is_anybodys_to_take() -> None:
    """Runwatch is on no package index."""
    roots = [ROOT / name for name in ("watchdog", "hooks", "server", "examples")]
    texts = [*PAGES, *(file for root in roots for file in root.rglob("*.*") if is_text(file))]

    assert [name_of(file) for file in texts if BY_NAME.search(file.read_text("utf-8"))] == []


def is_text(file: Path) -> bool:
    return file.suffix in (".py", ".ipynb", ".html", ".js")
