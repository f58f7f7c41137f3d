"""An alert as it is told to people: with its run's name, its commands, its labels."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from runwatch_server.alerts.records import AlertRecord
from runwatch_server.commands.records import CommandRecord
from runwatch_server.cut_names import cut_name

_MAX_GROUP: Final = 256
"""Characters that the database keeps of a group's name."""
_LABEL: Final = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An alert, and what must be known beside it to tell of it."""

    alert: AlertRecord
    run_name: str
    layer_group: str
    fired_at: float
    resolved_at: float | None
    """By the service's clock; None: it goes on."""
    commands: Sequence[CommandRecord]
    times: int = 1
    """How often this trouble has come by now."""
    settles_step: int | None = None
    """It is over, and told to be so once the run has got there (`settling`); None: it goes on, or
    its end is told."""
    card: str = ""
    """What went first, what changed before, the likeliest cause, what to try: in a few lines."""

    @property
    def is_resolved(self) -> bool:
        return self.resolved_at is not None

    @property
    def is_told_over(self) -> bool:
        """Whether people take it for over, or are to."""
        return self.is_resolved and self.settles_step is None


def layer_group(layer: str | None) -> str:
    """The block that a layer stands in: `blocks.12` of `blocks.12.mlp.down`."""
    if layer is None:
        return ""
    parts = layer.split(".")
    numbers = [place for place, part in enumerate(parts) if part.isdigit()]
    end = numbers[0] + 1 if numbers else max(len(parts) - 1, 1)
    return cut_name(".".join(parts[:end]), _MAX_GROUP)


def labels_of(case: Case, watchdog: str) -> dict[str, str]:
    """What names the alert, and never changes while it lives. Neither step nor value: they would
    make another alert of it at every step."""
    labels = labels_of_alert(case.alert, case.run_name, watchdog)
    return labels | ({"layer_group": case.layer_group} if case.layer_group else {})


def labels_of_alert(alert: AlertRecord, run_name: str, watchdog: str) -> dict[str, str]:
    """Those that are known before anybody is told: all but the group of layers."""
    own = {_label_name(name): value for name, value in alert.labels.items()}
    return own | {
        "alertname": alert.rule,
        "rule": alert.rule,
        "severity": alert.severity.value,
        "watchdog": watchdog,
        "project": alert.project,
        "run_id": alert.run_id,
        "run": run_name,
    }


def _label_name(name: str) -> str:
    """A rule's label as Prometheus allows it: Alertmanager 0.25 refuses any other."""
    kept = _LABEL.sub("_", name)
    return f"_{kept}" if kept[:1].isdigit() else kept or "_"
