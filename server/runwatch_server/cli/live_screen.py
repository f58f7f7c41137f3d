"""How `runwatch tail` shows a run: as a screen on a terminal, else as lines."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from runwatch.aliases import resolve
from runwatch.nonfinite import JsonNumber, from_json
from runwatch.terminal_text import readable
from runwatch.vocabulary import RunState
from runwatch_server.alerts.records import Resolution
from runwatch_server.cli.run_overview import AlertOverview, CommandOverview, Curve, RunOverview
from runwatch_server.cli.sparkline import sparkline
from runwatch_server.cli.worst_layers import LayerOverview

_STATE_STYLES: Final = {
    RunState.TRAINING: "green",
    RunState.EVALUATING: "green",
    RunState.CHECKPOINTING: "green",
    RunState.IDLE: "dim",
    RunState.FINISHED: "bold green",
    RunState.STALLED: "bold yellow",
    RunState.LOST: "bold red",
    RunState.FAILED: "bold red",
    RunState.STOPPED: "yellow",
}
SEVERITY_STYLES: Final = {"critical": "bold red", "warning": "yellow", "info": "cyan"}
_MOST_SHOWN: Final = 6
"""Most alerts, and most commands, that are shown; the rest are counted."""
_BESIDE: Final = 38
"""Columns beside a curve and its name: the newest value, the span and the gaps."""
_SHORTEST_CURVE: Final = 8
_TOLD: Final = ("loss", "grad_norm", "lr", "tokens_per_s")


def screen(
    overview: RunOverview, *, note: str, width: int, only_ascii: bool = False
) -> RenderableType:
    """The whole screen, for a terminal of this width. `note` says how updates come, or why they do
    not."""
    parts: list[RenderableType] = [_headline(overview), Text()]
    if overview.curves:
        parts += [_curves(overview.curves, width, only_ascii=only_ascii), Text()]
    if overview.layers:
        parts += [_layers(overview.layers), Text()]
    parts += _alerts(overview)
    parts += _commands(overview.commands)
    return Group(*parts, Text(note, style="dim"))


def line(overview: RunOverview) -> str:
    """A summary in one line, for a log."""
    run = overview.run
    recorded = resolve(overview.latest)
    numbers = [
        f"{recorded[name]} {shown(overview.latest[recorded[name]])}"
        for name in _TOLD
        if name in recorded
    ]
    firing = [f"{len(overview.alerts)} firing"] if overview.alerts else []
    firing += [f"{len(overview.left)} not recovered"] if overview.left else []
    step = "no step yet" if run.last_step is None else f"step {run.last_step}"
    return "  ".join([f"{overview.at:%H:%M:%S}", _state(overview), step, *numbers, *firing])


def changes(before: RunOverview | None, overview: RunOverview) -> Iterable[str]:
    """Alerts and commands that are new since the overview before, or have another state."""
    known_alerts = {} if before is None else {one.id: one for one in before.alerts}
    known_commands = {} if before is None else {one.id: one.state for one in before.commands}
    for alert in overview.alerts:
        known = known_alerts.pop(alert.id, None)
        if known is None or known.state != alert.state:
            yield f"  alert    {alert.severity} {alert.name}: {alert.state}: {alert.summary}"
    for command in overview.commands:
        if known_commands.get(command.id) != command.state:
            yield f"  command  {_action(command)}: {command.state} ({command.id})"
    left = {one.id: one for one in overview.left}
    for alert in known_alerts.values():
        how = _told_end(left[alert.id]) if alert.id in left else "over"
        yield f"  alert    {alert.severity} {alert.name}: {how}"


def shown(value: JsonNumber | float) -> str:
    """A number with at most four significant digits."""
    number = from_json(value)
    if isinstance(value, str) or not math.isfinite(number):
        return str(value)
    return f"{number:.4g}"


def _state(overview: RunOverview) -> str:
    return (
        f"{overview.run.state}: {overview.reason}" if overview.reason else str(overview.run.state)
    )


def _state_style(overview: RunOverview) -> str:
    """What finished in trouble is not green."""
    trouble = [*overview.alerts, *overview.left]
    if overview.run.state is RunState.FINISHED and trouble:
        return SEVERITY_STYLES.get(min(trouble, key=_place).severity, "")
    return _STATE_STYLES.get(overview.run.state, "")


def _place(alert: AlertOverview) -> int:
    return -alert.severity.gravity


def _headline(overview: RunOverview) -> Text:
    run = overview.run
    state = (_state(overview), _state_style(overview))
    step = "no step yet" if run.last_step is None else f"step {run.last_step}"
    speed = "" if overview.steps_per_s is None else f"  {overview.steps_per_s:.3g} steps/s"
    attempt = f"  attempt {run.current_attempt}" if run.current_attempt > 1 else ""
    text = Text.assemble((run.name, "bold"), "  ", state, f"  {step}{speed}{attempt}")
    return text.append(f"  policy {run.policy}  {run.id}", style="dim")


def _curves(curves: Sequence[Curve], width: int, *, only_ascii: bool) -> Table:
    """The newest end of each: what does not fit is cut on the left."""
    table = Table.grid(padding=(0, 2))
    room = max(width - max(len(curve.metric) for curve in curves) - _BESIDE, _SHORTEST_CURVE)
    for curve in curves:
        drawn_ones = curve.values[-room:]
        held = [value for value in drawn_ones if value is not None]
        finite = [value for value in held if math.isfinite(value)]
        newest = _number(held[-1]) if held else Text("-")
        span = f"{min(finite):.3g} to {max(finite):.3g}" if finite else "nothing finite"
        drawn = Text(sparkline(drawn_ones, only_ascii=only_ascii), no_wrap=True, style="cyan")
        table.add_row(Text(readable(curve.metric)), drawn, newest, Text(span, style="dim"))
    return table


def _number(value: float) -> Text:
    is_finite = math.isfinite(value)
    return Text(f"{value:.4g}", style="bold" if is_finite else "bold red")


def _layers(layers: Iterable[LayerOverview]) -> Table:
    table = Table.grid(padding=(0, 2))
    for index, layer in enumerate(layers):
        label = f"{layer.stat} of the worst layers" if index == 0 else ""
        factor = "" if layer.times_usual is None else f"{layer.times_usual:.3g} x its usual"
        is_broken = isinstance(layer.value, str)
        table.add_row(
            Text(label, style="dim"),
            Text(readable(layer.layer), overflow="fold"),
            Text(shown(layer.value), style="bold red" if is_broken else ""),
            Text(factor, style="yellow" if (layer.times_usual or 0) >= 3 else "dim"),
        )
    return table


def _alerts(overview: RunOverview) -> list[RenderableType]:
    where = f"runwatch alerts --run {overview.run.id}"
    if not overview.alerts and overview.left:
        return [*map(_left, overview.left[:_MOST_SHOWN]), *_more(len(overview.left), where)]
    if not overview.alerts and overview.has_had_alerts:
        return [Text(f"no alert fires any more; what did: {where}", style="yellow")]
    if not overview.alerts:
        return [Text("no alert has fired", style="green")]
    told: list[RenderableType] = []
    for alert in overview.alerts[:_MOST_SHOWN]:
        style = SEVERITY_STYLES.get(alert.severity, "")
        told.append(
            Text.assemble((f"{alert.severity:<9}", style), alert.name, f"  {alert.summary}")
        )
    return told + _more(len(overview.alerts), where)


def _left(alert: AlertOverview) -> Text:
    """An alert that is over, though the run did not recover."""
    style = SEVERITY_STYLES.get(alert.severity, "")
    return Text.assemble((f"{alert.severity:<9}", style), alert.name, f"  {_told_end(alert)}")


def _told_end(alert: AlertOverview) -> str:
    is_of_end = alert.resolution == Resolution.RUN_ENDED
    return "was still open when the run ended" if is_of_end else alert.ending


def _commands(commands: list[CommandOverview]) -> list[RenderableType]:
    told: list[RenderableType] = []
    for command in commands[:_MOST_SHOWN]:
        style = "dim" if command.is_ended else "bold yellow"
        text = Text.assemble(("command  ", style), f"{_action(command)}: {command.state}")
        told.append(text)
        if command.state == "proposed":
            told.append(Text(f"         runwatch approve {command.id}", style="dim"))
    return told + _more(len(commands), "the run's page")


def _more(num_all: int, where: str) -> list[RenderableType]:
    rest = num_all - _MOST_SHOWN
    return [Text(f"and {rest} more: {where}", style="dim")] if rest > 0 else []


def _action(command: CommandOverview) -> str:
    told = {name: value for name, value in command.action.items() if value is not None}
    kind = str(told.pop("kind", ""))
    words = [kind, *(f"{name} {value}" for name, value in told.items())]
    return ", ".join(words).replace("_", " ")
