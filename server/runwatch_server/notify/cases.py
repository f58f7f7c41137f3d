"""An alert as people are notified of it: with its run's name, its commands and its labels."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from runwatch_server.alerts.records import AlertRecord
from runwatch_server.commands.records import CommandRecord
from runwatch_server.cut_names import cut_name

_MAX_GROUP: Final = 256
"""Most characters that the database stores of a group's name."""
_LABEL: Final = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An alert, and what else a message about it needs."""

    alert: AlertRecord
    run_name: str
    layer_group: str
    fired_at: float
    resolved_at: float | None
    """By the service's clock; None if it is not over."""
    commands: Sequence[CommandRecord]
    times: int = 1
    """How often this problem has occurred so far."""
    settles_step: int | None = None
    """The alert is over, and its end is sent once the run has reached this step (`settling`). None
    if it goes on, or if its end is sent now."""
    card: str = ""
    """In a few lines: first anomalies, changes before, the likeliest cause and what to try."""

    @property
    def is_resolved(self) -> bool:
        return self.resolved_at is not None

    @property
    def is_reported_over(self) -> bool:
        """Whether people have been told that it is over, or are about to be."""
        return self.is_resolved and self.settles_step is None


def layer_group(layer: str | None) -> str:
    """The block that contains a layer: `blocks.12` for `blocks.12.mlp.down`."""
    if layer is None:
        return ""
    parts = layer.split(".")
    numbers = [place for place, part in enumerate(parts) if part.isdigit()]
    end = numbers[0] + 1 if numbers else max(len(parts) - 1, 1)
    return cut_name(".".join(parts[:end]), _MAX_GROUP)


def labels_of(case: Case, watchdog: str) -> dict[str, str]:
    """The labels that identify the alert and never change while it lasts. They include neither step
    nor value, which would make it another alert at every step."""
    labels = labels_of_alert(case.alert, case.run_name, watchdog)
    return labels | ({"layer_group": case.layer_group} if case.layer_group else {})


def labels_of_alert(alert: AlertRecord, run_name: str, watchdog: str) -> dict[str, str]:
    """The labels that are known before anybody is notified: all but the group of layers."""
    own = {label_name(name): value for name, value in alert.labels.items()}
    return own | {
        "alertname": alert.rule,
        "rule": alert.rule,
        "severity": alert.severity.value,
        "watchdog": watchdog,
        "project": alert.project,
        "run_id": alert.run_id,
        "run": run_name,
    }


def label_name(name: str) -> str:
    """A rule's label as a name that Prometheus allows, because Alertmanager 0.25 refuses any
    other."""
    kept = _LABEL.sub("_", name)
    return f"_{kept}" if kept[:1].isdigit() else kept or "_"
