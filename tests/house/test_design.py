"""docs/design.md names the whole interface: arguments, methods, paths and commands."""

import inspect
import re
from dataclasses import fields

from tests.house.documents import ROOT
from tests.house.reference.commands import commands
from tests.house.reference.paths import routes

from runwatch_hooks import StepReport, Watch, attach

DESIGN = (ROOT / "docs" / "design.md").read_text("utf-8")


def section(number: str) -> str:
    return DESIGN.split(f"\n### {number} ")[1].split("\n### ")[0]


def signature() -> str:
    """That of `attach`, without its types."""
    parameters = inspect.signature(attach).parameters.values()
    plain = [one.replace(annotation=one.empty) for one in parameters]
    return str(inspect.Signature(plain)).replace("'", '"')


def named_requests() -> set[str]:
    """The `METHOD /path` of each request, where `POST/GET /a/b|c` are four."""
    found = re.findall(r"`((?:[A-Z]+/?)+) (/[^`?]*)", section("4.5"))
    return {
        f"{method} {re.sub(r'{[^}]*}', '{}', path.rsplit('/', 1)[0])}/{last}"
        for methods, path in found
        for method in methods.split("/")
        for last in re.sub(r"{[^}]*}", "{}", path.rsplit("/", 1)[1]).split("|")
    }


def test_it_gives_each_argument_of_attach_with_its_default() -> None:
    assert f"`attach{signature()} -> Watch`" in re.sub(r"\s+", " ", DESIGN)


def test_it_names_what_a_watch_and_a_report_have() -> None:
    text = section("4.1")
    names = [name for name in dir(Watch) if not name.startswith("_")]
    for name in [*names, *(one.name for one in fields(StepReport))]:
        assert f".{name}" in text, name


def test_it_names_every_request_of_the_interface_and_no_other() -> None:
    known = {
        f"{method} {re.sub(r'{[^}]*}', '{}', path.removeprefix('/api/v1'))}"
        for method, path, _, _ in routes()
        if path.startswith("/api/v1")
    }

    assert named_requests() == known


def test_it_names_every_command() -> None:
    text = section("4.6")
    for name, _ in commands():
        first, _, second = name.partition(" ")
        assert re.search(rf"`{first}\b[^`]*{second}", text), name
