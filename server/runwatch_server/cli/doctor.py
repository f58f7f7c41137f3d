"""`runwatch doctor`: checks the installation, settings, service and the cost of watching."""

import subprocess
import sys
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from runwatch.findings import Finding, Verdict, is_all_right
from runwatch_server.cli.client import DEFAULT_URL, Token, Url
from runwatch_server.cli.output import AsJson, OurConsole, print_facts
from runwatch_server.cli.service_checks import check_service
from runwatch_server.cli.setting_checks import check_extras, check_settings, check_sqlite

_STYLES: Final = {Verdict.GOOD: "green", Verdict.NOTE: "yellow", Verdict.WRONG: "bold red"}
_PARTS: Final = ("installed", "environment", "spool", "service", "model")
_EXAMINE_S: Final = 600.0


def doctor(
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FACTORY",
            help="Measure a model: a function without arguments, importable from this folder, that "
            "returns the model, or the model and its optimizer.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Find what is missing or misconfigured, on this machine and at the service.

    With --model: also show what the hook would measure of it, and at what cost. Exits with 0 if
    nothing is wrong, else with 1.
    """
    findings = [
        *_trainer_side(model),
        *check_extras(),
        check_sqlite(),
        *check_settings(),
        *check_service(url, token),
    ]
    findings.sort(key=lambda finding: _PARTS.index(finding.part))
    if as_json:
        print_facts({"findings": findings})
    else:
        _show(OurConsole(), findings)
    raise typer.Exit(0 if is_all_right(findings) else 1)


def _trainer_side(model: str | None) -> list[Finding]:
    """Runs the hook's checks in a process of their own: hook and service share only the core, and
    the service's machine need not load torch."""
    asked = [] if model is None else ["--model", model]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "runwatch_hooks.doctor", "--json", *asked],
        stdout=subprocess.PIPE,
        check=False,
        timeout=_EXAMINE_S,
    )
    try:
        # The last line: what a model's own modules print comes before it.
        return msgspec.json.decode(done.stdout.splitlines()[-1], type=list[Finding])
    except (IndexError, msgspec.DecodeError):
        found = f"it ended with {done.returncode} and no report"
        return [Finding("installed", "the trainer's side", Verdict.WRONG, found)]


def _show(console: Console, findings: list[Finding]) -> None:
    part = ""
    for finding in findings:
        if finding.part != part:
            part = finding.part
            console.print(Text(f"\n{part}", style="bold"))
        mark = Text(f"  {finding.verdict:<6}", style=_STYLES[finding.verdict])
        console.print(mark.append(f"{finding.name}: {finding.found}", style="none"), soft_wrap=True)
        if finding.advice:
            console.print(Text(f"        {finding.advice}", style="dim"), soft_wrap=True)
    num_wrong = sum(finding.verdict is Verdict.WRONG for finding in findings)
    is_right = num_wrong == 0
    text = "Nothing is wrong." if is_right else f"{num_wrong} wrong: see above."
    console.print(Text(f"\n{text}", style="green" if is_right else "bold red"))
