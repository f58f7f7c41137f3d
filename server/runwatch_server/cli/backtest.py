"""`runwatch backtest`: the alerts that rules would have raised on past runs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console

from runwatch.number_texts import counted
from runwatch.rules import Rule
from runwatch.rules.nonfinite_rule import is_loss
from runwatch.rules.thresholds import series_needed
from runwatch.vocabulary import Severity
from runwatch_server.cli.client import DEFAULT_URL, Token, Url, open_client
from runwatch_server.cli.output import AsJson, OurConsole, print_facts
from runwatch_server.cli.progress import new_progress, warn_unreadable
from runwatch_server.cli.rule_files import BUILTIN, read_rule_text, read_rules
from runwatch_server.cli.run_names import find_run_id
from runwatch_server.cli.tables import print_table
from runwatch_server.importing import LogError, RunLog, read_run_log
from runwatch_server.rules.backtest import (
    Backtest,
    BacktestReply,
    BacktestRun,
    BacktestSummary,
    summary_of,
)

_SHOWN_FIELDS: Final = (
    "alert", "severity", "labels", "pending_step", "firing_step", "resolved_step", "value",
    "inhibited_by", "shadow",
)  # fmt: skip
"""An alert's fields with --json, and no others (docs/design.md, section 4.6)."""
_PATIENCE_S: Final = 600.0
_MOST_NAMED: Final = 8
_FEWEST_DAYS: Final = 1 / 24
"""No rate is shown for less than an hour: one page in five seconds is not 17 000 a day."""


def backtest(
    logs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILES...", help="Logs in any known format, or folders of them."),
    ] = None,
    rules: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|builtin",
            help="A rule file; by default builtin, with --run the rules in force there.",
        ),
    ] = None,
    run: Annotated[
        list[str] | None,
        typer.Option(
            help="A run of a service: its id, or its name for the newest one; may be repeated."
        ),
    ] = None,
    severity: Annotated[
        list[Severity] | None, typer.Option(help="Only alerts of this severity.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Show which alerts rules would have raised on past runs.

    FILES are CSV, JSON lines, Hugging Face's trainer_state.json, TensorBoard's event files, W&B's
    offline runs, or what a trainer printed. Exits with 1 if a file could not be read; the others
    are still judged.
    """
    if not logs and not run:
        OurConsole(stderr=True).print(
            "runwatch backtest: found neither FILES nor --run, wanted one"
        )
        raise typer.Exit(2)
    chosen = frozenset(severity or Severity)
    judged = tuple(filed.rule for filed in read_rules(rules or BUILTIN))
    stored = [
        found for one in run or [] for found in _judge_stored(one, rules, url=url, token=token)
    ]
    in_files = list(_judge_files(logs or [], judged))
    runs = [_only(found, chosen) for found in [*in_files, *stored]]
    if as_json:
        print_facts({"runs": [_to_document(found) for found in runs], "summary": summary_of(runs)})
    elif runs:
        _show(runs)
    if len(in_files) < len(logs or []):
        raise typer.Exit(1)


def judge(name: str, log: RunLog, rules: Sequence[Rule]) -> BacktestRun:
    """A backtest of one log, from its start."""
    test = Backtest.of_rules(rules)
    test.has_times = log.has_times
    for rows in log.stretches:
        test.observe(rows)
    return test.result(name)


def _judge_files(paths: Sequence[Path], rules: Sequence[Rule]) -> Iterator[BacktestRun]:
    """The logs that can be read; the others are reported."""
    console = OurConsole(stderr=True)
    with new_progress(console) as progress:
        task = progress.add_task("Judging", total=len(paths))
        for path in paths:
            progress.update(task, description=path.name[-40:])
            try:
                log = read_run_log(path)
                _warn_unread(console, path, log, rules)
                yield judge(str(path), log, rules)
            except (LogError, OSError) as error:
                warn_unreadable(console, path, error)
            progress.advance(task)


def _warn_unread(console: Console, path: Path, log: RunLog, rules: Sequence[Rule]) -> None:
    """Warns of a log with no series that any rule reads: that it has no alerts means nothing."""
    held = {name for rows in log.stretches for name in (*rows.metric_names, *rows.stat_names)}
    needed = {name for rule in rules for name in series_needed(rule)}
    if held.isdisjoint(needed) and not any(map(is_loss, held)):
        found = ", ".join(sorted(held)[:_MOST_NAMED])
        wanted = ", ".join(sorted(needed, key=lambda name: (name != "loss", name))[:_MOST_NAMED])
        text = f"{path}: found {found or 'no series'}, which no rule reads; wanted {wanted}"
        console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)


def _judge_stored(run: str, rules: str | None, *, url: str, token: str) -> Sequence[BacktestRun]:
    text = None if rules is None else read_rule_text(rules)
    with open_client(url, token) as client:
        order = {"run_id": find_run_id(client, run), "rules": text}
        reply = client.request(
            BacktestReply, "POST", "/rules/backtest", json=order, timeout=_PATIENCE_S
        )
    return reply.facts.runs


def _only(found: BacktestRun, chosen: frozenset[Severity]) -> BacktestRun:
    alerts = [alert for alert in found.alerts if alert.severity in chosen]
    return msgspec.structs.replace(found, alerts=alerts)


def _to_document(found: BacktestRun) -> dict[str, object]:
    alerts = [{name: getattr(alert, name) for name in _SHOWN_FIELDS} for alert in found.alerts]
    return {
        "file": found.file,
        "rows": found.rows,
        "alerts": alerts,
        "lead_steps": found.lead_steps,
        "lead_s": found.lead_s,
    }


def _show(runs: Sequence[BacktestRun]) -> None:
    columns = ("run", "rows", "alerts", "pages", "first firing", "severity", "lead, steps")
    print_table(columns, map(_cells, runs))
    console = OurConsole()
    for line in _lines(summary_of(runs)):
        console.print(line, highlight=False)


def _lines(summary: BacktestSummary) -> Iterator[str]:
    yield f"{summary.runs_with_alerts} of {counted(summary.runs, 'run')} with alerts"
    rate = ""
    if (
        summary.days is not None
        and summary.pages_a_day is not None
        and summary.days >= _FEWEST_DAYS
    ):
        rate = f", {summary.pages_a_day:.3g} pages a day over {summary.days:.3g} days"
    yield f"{counted(summary.alerts, 'alert')}, {counted(summary.pages, 'page')} among them{rate}"
    if summary.inhibited:
        yield f"{summary.inhibited} more are explained by others, and sent to nobody"
    if summary.shadow:
        yield f"{summary.shadow} more are of rules on trial, and sent to nobody"


def _cells(found: BacktestRun) -> tuple[object, ...]:
    told = [alert for alert in found.alerts if alert.is_notifiable]
    first = min(told, key=lambda alert: alert.firing_step, default=None)
    firing = None if first is None else f"{first.alert} at step {first.firing_step}"
    severities = {alert.severity for alert in told}
    worst = next((one for one in reversed(Severity) if one in severities), None)
    num_pages = sum(alert.severity == Severity.CRITICAL for alert in told)
    return (
        *(found.file, found.rows, len(told), num_pages),
        *(firing, worst, found.lead_steps),
    )
