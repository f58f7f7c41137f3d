"""The state of a run that `runwatch tail` shows, read with a few requests."""

import math
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from runwatch.alerts import AlertState
from runwatch.aliases import resolve, role_of
from runwatch.commands import CommandState
from runwatch.series import Role
from runwatch.vocabulary import PolicyMode, RunState, Severity
from runwatch_server.alerts.records import Resolution
from runwatch_server.cli.answers import Number
from runwatch_server.cli.client import Client
from runwatch_server.cli.worst_layers import LayerOverview, number_of, worst_layers

POINTS: Final = 60
CURVES: Final = ("loss", "grad_norm", "lr", "loss_scale")
_PEAKS: Final = Role.GRADIENT_NORM
"""Drawn with the largest value of each bucket, since a mean would hide spikes."""
_STATS: Final = ("grad_norm", "grad_absmax", "param_norm")
"""Stats to rank layers by; the first that is measured is used."""
_BROKEN_STAT: Final = "nonfinite"
_LAYER_POINTS: Final = 16
_LAYER_STEPS: Final = 256
_LAYERS_EVERY_S: Final = 5.0
_MOST_ALERTS: Final = 100
_OPEN: Final = (AlertState.FIRING, AlertState.RECOVERING)
_OVER: Final = (AlertState.RESOLVED,)
_MOST_COMMANDS: Final = 20


class RunFacts(msgspec.Struct, frozen=True):
    id: str
    name: str
    project: str
    state: RunState
    policy: PolicyMode
    current_attempt: int
    last_step: int | None


class _Attempt(msgspec.Struct, frozen=True):
    attempt: int
    reason: str | None = None


class _Attempts(msgspec.Struct, frozen=True):
    attempts: list[_Attempt]


class Curve(msgspec.Struct, frozen=True):
    """A metric over the newest steps; None is a gap, NaN and infinities stay as they are."""

    metric: str
    values: list[float | None]


class AlertOverview(msgspec.Struct, frozen=True):
    id: str
    rule: str
    severity: Severity
    state: str
    firing_step: int | None
    summary: str
    rank: int = 0
    attempt: int = 1
    resolution: str | None = None
    outcome: str = ""
    acked_by: str | None = None
    inhibited_by: str | None = None

    @property
    def ending(self) -> str:
        """How it ended, if not by recovery."""
        if self.resolution == Resolution.SETTLED_WORSE:
            return f"not recovered: {self.outcome}"
        is_well = self.resolution in (None, Resolution.RECOVERED)
        return "" if is_well else (self.resolution or "").replace("_", " ")

    @property
    def name(self) -> str:
        """Its rule, and its rank unless that is rank 0, which speaks for the run."""
        return f"{self.rule} (rank {self.rank})" if self.rank else self.rule


class CommandOverview(msgspec.Struct, frozen=True):
    id: str
    action: dict[str, Any]
    state: CommandState
    reason: str

    @property
    def is_ended(self) -> bool:
        return self.state.is_ended


class _Alerts(msgspec.Struct, frozen=True):
    alerts: list[AlertOverview]


class _Commands(msgspec.Struct, frozen=True):
    commands: list[CommandOverview]


class _Pulse(msgspec.Struct, frozen=True):
    latest: dict[str, Number] = {}
    steps_per_s: float | None = None


class _Pulses(msgspec.Struct, frozen=True):
    pulses: list[_Pulse]


class _Layout(msgspec.Struct, frozen=True):
    stats: list[str]


class _Names(msgspec.Struct, frozen=True):
    """What is measured in a run."""

    metrics: list[str]
    layouts: list[_Layout]


class _Series(msgspec.Struct, frozen=True):
    """The values as recorded, or buckets of them."""

    values: list[Number] | None = None
    max: list[Number] | None = None
    mean: list[Number] | None = None
    nonfinite: list[int] | None = None

    def __post_init__(self) -> None:
        lengths = {len(part or ()) for part in (self.max, self.mean, self.nonfinite)}
        if self.values is None and (self.nonfinite is None or len(lengths) > 1):
            raise ValueError("found neither values nor buckets of equal number, wanted one of them")

    def buckets(self, *, peaks: bool) -> Iterable[tuple[Number, int]]:
        """The largest or the mean finite value of each, with the number of the others."""
        return zip((self.max if peaks else self.mean) or (), self.nonfinite or (), strict=True)


class _Grid(msgspec.Struct, frozen=True):
    layers: list[str]
    values: list[list[Number]]
    """A row per layer."""

    def __post_init__(self) -> None:
        if len(self.values) != len(self.layers):
            found = f"{len(self.values)} rows for {len(self.layers)} layers"
            raise ValueError(f"found {found}, wanted one for each")


class RunOverview(msgspec.Struct, frozen=True):
    at: datetime
    run: RunFacts
    latest: dict[str, Number]
    """The newest values, by metric."""
    steps_per_s: float | None
    curves: list[Curve]
    layers: list[LayerOverview]
    """Layers that stand out, the worst first."""
    alerts: list[AlertOverview]
    """Firing alerts, the critical ones first."""
    has_had_alerts: bool
    """Whether any alert has ever fired in this run."""
    commands: list[CommandOverview]
    """The newest commands, the pending ones first."""
    reason: str = ""
    """Why the run ended, if its program said so; for example an exception."""
    left: list[AlertOverview] = []
    """Critical alerts and warnings of the attempt that are over without recovery: those that fired
    when the run ended, and those that settled worse and that nobody has acknowledged."""


class OverviewReader:
    """Reads one run's state again and again; its layers, which cost most, less often."""

    def __init__(self, client: Client, run_id: str, num_steps: int) -> None:
        self._client = client
        self._run_id = run_id
        self._num_steps = num_steps
        self._layers: list[LayerOverview] = []
        self._layers_at = -math.inf

    def read(self) -> RunOverview:
        """Raises UnavailableError; a refusal by the service ends the command."""
        client, path = self._client, f"/runs/{self._run_id}"
        run = client.ask(RunFacts, "GET", path).facts
        names = client.ask(_Names, "GET", f"{path}/metrics").facts
        pulse = _read_pulse(client, self._run_id)
        alerts = _read_alerts(client, self._run_id, _OPEN)
        over = _read_alerts(client, self._run_id, _OVER)
        first = max((run.last_step or 0) - self._num_steps + 1, 0)
        recorded = resolve(names.metrics)
        return RunOverview(
            at=datetime.now(UTC),
            run=run,
            latest=pulse.latest,
            steps_per_s=pulse.steps_per_s,
            curves=[
                _read_curve(client, self._run_id, recorded[series], first)
                for series in CURVES
                if series in recorded
            ],
            layers=self._read_layers(run, names.layouts),
            alerts=sorted(alerts, key=_urgency),
            has_had_alerts=bool(alerts or over),
            left=sorted((one for one in over if _is_left(one, run)), key=_urgency),
            commands=_read_commands(client, self._run_id),
            reason=_read_reason(client, run) if run.state.is_ended else "",
        )

    def _read_layers(self, run: RunFacts, layouts: Sequence[_Layout]) -> list[LayerOverview]:
        now = time.monotonic()
        if run.state.is_ended or now - self._layers_at >= _LAYERS_EVERY_S:
            self._layers = _read_layers(self._client, run, layouts)
            self._layers_at = now
        return self._layers


def _read_reason(client: Client, run: RunFacts) -> str:
    asked = {"next_token": max(run.current_attempt - 1, 0), "limit": 1}
    path = f"/runs/{run.id}/attempts"
    attempts = client.ask(_Attempts, "GET", path, params=asked).facts.attempts
    found = [one.reason for one in attempts if one.attempt == run.current_attempt]
    return (found[0] or "") if found else ""


def _read_pulse(client: Client, run_id: str) -> _Pulse:
    pulses = client.ask(_Pulses, "GET", "/fleet/pulse", params={"run_id": run_id}).facts.pulses
    return pulses[0] if pulses else _Pulse()  # removed meanwhile


def _read_curve(client: Client, run_id: str, metric: str, first_step: int) -> Curve:
    asked = {"metric": metric, "from": first_step, "points": POINTS}
    series = client.ask(_Series, "GET", f"/runs/{run_id}/series", params=asked).facts
    if series.values is not None:
        return Curve(metric, [number_of(value) for value in series.values])
    return Curve(
        metric,
        [
            math.nan if num_broken else number_of(value)
            for value, num_broken in series.buckets(peaks=role_of(metric) is _PEAKS)
        ],
    )


def _read_layers(client: Client, run: RunFacts, layouts: Sequence[_Layout]) -> list[LayerOverview]:
    measured = layouts[-1].stats if layouts else ()
    stat = next((stat for stat in _STATS if stat in measured), None)
    if stat is None or run.last_step is None:
        return []
    first = max(run.last_step - _LAYER_STEPS + 1, 0)
    grid = _read_grid(client, run.id, stat, first)
    counts: list[list[Number]] = []
    if _BROKEN_STAT in measured:
        counts = _read_grid(client, run.id, _BROKEN_STAT, first).values
    return worst_layers(stat, grid.layers, grid.values, counts)


def _read_grid(client: Client, run_id: str, stat: str, first_step: int) -> _Grid:
    asked: dict[str, str | int] = {"stat": stat, "from": first_step, "points": _LAYER_POINTS}
    return client.ask(_Grid, "GET", f"/runs/{run_id}/heatmap", params=asked).facts


def _read_alerts(client: Client, run_id: str, states: Sequence[AlertState]) -> list[AlertOverview]:
    """The newest alerts in these states, without those of rules on trial."""
    asked = {"run_id": run_id, "state": states, "shadow": False, "limit": _MOST_ALERTS}
    return client.ask(_Alerts, "GET", "/alerts", params=asked).facts.alerts


def _is_left(alert: AlertOverview, run: RunFacts) -> bool:
    if alert.attempt != run.current_attempt or alert.severity is Severity.INFO:
        return False
    if alert.inhibited_by is not None:
        return False
    if alert.resolution == Resolution.SETTLED_WORSE:
        return alert.acked_by is None
    return alert.resolution == Resolution.RUN_ENDED and run.state.is_ended


def _urgency(alert: AlertOverview) -> tuple[int, str]:
    return (-alert.severity.gravity, alert.id)


def _read_commands(client: Client, run_id: str) -> list[CommandOverview]:
    asked = {"limit": _MOST_COMMANDS}
    commands = client.ask(_Commands, "GET", f"/runs/{run_id}/commands", params=asked).facts.commands
    return sorted(commands, key=lambda command: command.is_ended)
