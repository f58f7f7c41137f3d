"""`runwatch backtest`: what rules would have said about runs that are over."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console

from runwatch.rules import Rule
from runwatch.vocabulary import Severity
from runwatch_server.cli.client import DEFAULT_URL, Token, Url, open_client
from runwatch_server.cli.progress import new_progress, tell_unreadable
from runwatch_server.cli.rule_files import BUILTIN, read_rule_text, read_rules
from runwatch_server.cli.tables import print_table
from runwatch_server.importing import LogError, RunLog, read_run_log
from runwatch_server.rules.backtest import Backtest, BacktestReply, BacktestRun

_SHOWN_FIELDS: Final = (
    "alert", "severity", "labels", "pending_step", "firing_step", "resolved_step", "value",
)  # fmt: skip
"""Of an alert, with --json: these and no others (docs/design.md, section 4.6)."""
_PATIENCE_S: Final = 600.0


def backtest(
    logs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILES...", help="Logs in any known format, or their folders."),
    ] = None,
    rules: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|builtin", help="Default: builtin; for --run, the rules in force there."
        ),
    ] = None,
    run: Annotated[
        list[str] | None,
        typer.Option(help="A run of a service, by its id; give it again for more."),
    ] = None,
    severity: Annotated[
        list[Severity] | None, typer.Option(help="Only alerts of this severity.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: Annotated[bool, typer.Option("--json", help="For machines, on stdout.")] = False,
) -> None:
    """Say which alerts rules would have raised on past runs.

    FILES are CSV, JSON lines, Hugging Face's trainer_state.json, TensorBoard's event files, or
    W&B's offline runs. Ends with 1 where a file could not be read; the others are judged.
    """
    if not logs and not run:
        Console(stderr=True).print("runwatch backtest: found neither FILES nor --run, wanted one")
        raise typer.Exit(2)
    chosen = frozenset(severity or Severity)
    judged = tuple(filed.rule for filed in read_rules(rules or BUILTIN))
    stored = [
        found
        for run_id in run or []
        for found in _judge_stored(run_id, rules, url=url, token=token)
    ]
    in_files = list(_judge_files(logs or [], judged))
    runs = [_only(found, chosen) for found in [*in_files, *stored]]
    if as_json:
        typer.echo(json.dumps({"runs": [_to_document(found) for found in runs]}))
    else:
        _show(runs)
    if len(in_files) < len(logs or []):
        raise typer.Exit(1)


def judge(name: str, log: RunLog, rules: Sequence[Rule]) -> BacktestRun:
    """A log, judged from its start."""
    test = Backtest.of_rules(rules)
    for rows in log.stretches:
        test.observe(rows)
    return test.result(name)


def _judge_files(paths: Sequence[Path], rules: Sequence[Rule]) -> Iterator[BacktestRun]:
    """Those that can be read; the others are named."""
    console = Console(stderr=True)
    with new_progress(console) as progress:
        task = progress.add_task("Judging", total=len(paths))
        for path in paths:
            progress.update(task, description=path.name[-40:])
            try:
                yield judge(str(path), read_run_log(path), rules)
            except (LogError, OSError) as error:
                tell_unreadable(console, path, error)
            progress.advance(task)


def _judge_stored(run_id: str, rules: str | None, *, url: str, token: str) -> Sequence[BacktestRun]:
    order = {"run_id": run_id, "rules": None if rules is None else read_rule_text(rules)}
    with open_client(url, token) as client:
        reply = client.request("POST", "/rules/backtest", json=order, timeout=_PATIENCE_S)
    return msgspec.json.decode(reply.content, type=BacktestReply).runs


def _only(found: BacktestRun, chosen: frozenset[Severity]) -> BacktestRun:
    alerts = [alert for alert in found.alerts if alert.severity in chosen]
    return msgspec.structs.replace(found, alerts=alerts)


def _to_document(found: BacktestRun) -> dict[str, object]:
    alerts = [{name: getattr(alert, name) for name in _SHOWN_FIELDS} for alert in found.alerts]
    return {"file": found.file, "rows": found.rows, "alerts": alerts}


def _show(runs: Sequence[BacktestRun]) -> None:
    print_table(("run", "rows", "alerts", "first firing", "severity"), map(_cells, runs))
    num_alarmed = sum(bool(found.alerts) for found in runs)
    Console().print(f"{num_alarmed} of {len(runs)} runs have alerts", highlight=False)


def _cells(found: BacktestRun) -> tuple[object, ...]:
    first = min(found.alerts, key=lambda alert: alert.firing_step, default=None)
    firing = None if first is None else f"{first.alert} at step {first.firing_step}"
    severities = {alert.severity for alert in found.alerts}
    worst = next((one for one in reversed(Severity) if one in severities), None)
    return (found.file, found.rows, len(found.alerts), firing, worst)
