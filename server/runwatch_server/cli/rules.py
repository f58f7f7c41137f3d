"""`runwatch rules`: checks, tests, lists and applies rules."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from runwatch.errors import Fault, RuleError
from runwatch.number_texts import counted
from runwatch.rules.rule_tests import RuleTestResult, run_rule_tests
from runwatch_server.cli.client import DEFAULT_URL, Client, Token, Url, in_path, open_client
from runwatch_server.cli.output import AsJson, print_either, print_facts, print_text
from runwatch_server.cli.rule_files import BUILTIN, load_rules, read_rules, refuse, text_of
from runwatch_server.cli.tables import print_table
from runwatch_server.rules.documents import located, parse_yaml
from runwatch_server.rules.pack import FiledRule

app = typer.Typer(
    help="Check, test, list and apply rules.", no_args_is_help=True, add_completion=False
)

File = Annotated[Path, typer.Argument(help="A rule file in YAML.", exists=True, dir_okay=False)]


class _Named(msgspec.Struct):
    """The head of a file of tests."""

    rule_files: list[str] = []


class _Rule(msgspec.Struct, frozen=True):
    name: str
    source: str
    project: str | None
    version: int
    in_force: bool
    id: str
    document: dict[str, object]


class _Rules(msgspec.Struct, frozen=True):
    rules: list[_Rule]


class _FileReport(msgspec.Struct, frozen=True):
    """The result of a file of tests; if it has faults, it could not be used."""

    file: str
    tests: list[RuleTestResult] = []
    faults: tuple[Fault, ...] = ()


@app.command()
def check(
    file: File,
    as_json: AsJson = False,
) -> None:
    """Show all faults of a rule file; needs no service. Exits with 1 if there are any."""
    if as_json:
        _check_as_json(file)
        return
    filed_rules = read_rules(str(file))
    print_text(f"{file}: in order; rules found: {len(filed_rules)}")


def _check_as_json(file: Path) -> None:
    names, faults = list[str](), tuple[Fault, ...]()
    try:
        names = [filed.rule.name for filed in load_rules(str(file))]
    except RuleError as error:
        faults = error.faults
    found = {"file": str(file), "valid": not faults, "rules": names, "faults": faults}
    print_facts(found)
    if faults:
        raise typer.Exit(1)


@app.command("test")
def run_tests(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES...", help="Tests of rules, in YAML.")
    ],
    as_json: AsJson = False,
) -> None:
    """Run tests of rules, written as data (docs/rules.md); needs no service.

    `rule_files` in a file names the rule files that it tests, relative to it; without it, the
    built-in rules are tested. Exits with 1 if a test fails, with 2 if a file cannot be used.
    """
    reports = [_tested(file) for file in files]
    if as_json:
        print_facts({"files": reports})
    else:
        for report in reports:
            _show_report(report)
        print_text(_summary(reports))
    if any(report.faults for report in reports):
        raise typer.Exit(2)
    if any(test.failures for report in reports for test in report.tests):
        raise typer.Exit(1)


def _tested(file: Path) -> _FileReport:
    try:
        return _FileReport(str(file), tests=_run_tests(file))
    except RuleError as error:
        return _FileReport(str(file), faults=error.faults)


def _show_report(report: _FileReport) -> None:
    if report.faults:
        refuse(report.file, report.faults)
        return
    failed = [test for test in report.tests if test.failures]
    print_text(f"{report.file}: {counted(len(report.tests), 'test')}, {len(failed)} failed")
    for test in failed:
        print_text(f"  FAILED {test.name}")
        for failure in test.failures:
            print_text(textwrap.indent(failure, "    "))


def _summary(reports: Sequence[_FileReport]) -> str:
    tests = [test for report in reports for test in report.tests]
    num_failed = sum(bool(test.failures) for test in tests)
    num_unusable = sum(bool(report.faults) for report in reports)
    return (
        f"{counted(len(tests), 'test')}, {num_failed} failed, "
        f"{counted(num_unusable, 'file')} unusable"
    )


@app.command("list")
def list_rules(
    project: Annotated[
        str | None, typer.Option(help="Only those in force for this project.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Show the built-in rules and your own."""
    with open_client(url, token) as client:
        params = {} if project is None else {"project": project}
        found = client.request(_Rules, "GET", "/rules", params=params)
    if as_json:
        print_facts(found.document)
        return
    columns = ("name", "source", "project", "version", "in_force", "id")
    print_table(columns, ([getattr(rule, c) for c in columns] for rule in found.facts.rules))


@app.command("apply")
def apply_file(
    file: File,
    project: Annotated[str | None, typer.Option(help="For this project only.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Put a file's rules in force: new ones are added, existing ones replaced."""
    filed_rules = read_rules(str(file))
    with open_client(url, token) as client:
        found = client.request(_Rules, "GET", "/rules").facts.rules
        known = {
            rule.name: rule for rule in found if rule.source == "user" and rule.project == project
        }
        for filed in filed_rules:
            _apply(client, filed, known.get(filed.rule.name), project)
    names = [filed.rule.name for filed in filed_rules]
    print_either(f"In force: {', '.join(names)}", {"in_force": names}, as_json=as_json)


def _apply(client: Client, filed: FiledRule, known: _Rule | None, project: str | None) -> None:
    if known is None:
        params = {} if project is None else {"project": project}
        client.request(_Rules, "POST", "/rules", json=filed.file, params=params)
    elif known.document != filed.file:
        headers = {"If-Match": f'"{known.version}"'}
        path = f"/rules/{in_path(known.id)}"
        client.request(_Rule, "PUT", path, json=filed.file, headers=headers)


def _names_of_rule_files(document: object) -> list[str]:
    """Raises RuleError."""
    try:
        return msgspec.convert(document, _Named).rule_files
    except msgspec.ValidationError as error:
        raise RuleError([Fault("file", f"found no tests of rules: {error}")]) from error


def _run_tests(file: Path) -> list[RuleTestResult]:
    """The results of a file's tests, with the rule files that it names, else the built-in rules.

    Ends the command if a rule file cannot be used. Raises RuleError."""
    document, lines = parse_yaml(text_of(file))
    named = _names_of_rule_files(document)
    rules = [
        filed.rule
        for name in named or [BUILTIN]
        for filed in read_rules(name if name == BUILTIN else str(file.parent / name))
    ]
    try:
        return list(run_rule_tests(document, rules))
    except RuleError as error:
        raise located(error, lines) from error
