"""Describes what happens to a run in sentences, each change once. No I/O."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from runwatch_server.demo.client import Alert, Command

_COMMAND_STATES = {
    "proposed": "is proposed",
    "queued": "is on its way",
    "delivered": "has reached the trainer",
    "accepted": "was accepted by the trainer",
    "applied": "was carried out",
    "failed": "failed",
    "rejected": "was rejected by the trainer",
    "expired": "expired",
    "cancelled": "was cancelled",
}
_ALERT_STATES = {
    "firing": "fires",
    "recovering": "is recovering",
    "resolved": "is resolved",
}
"""The states that are reported: what is pending may still go away, and nobody needs to know."""


@dataclass(frozen=True, slots=True)
class DemoEvent:
    """One sentence, and its kind, which decides its colour."""

    kind: str
    """`alert`, `command` or `trainer`."""
    text: str


@dataclass(slots=True)
class RunEvents:
    """Remembers the state of each alert and command that was reported last."""

    _last_states: dict[str, str] = field(default_factory=dict[str, str])

    def of_alerts(self, alerts: Iterable[Alert]) -> list[DemoEvent]:
        return [
            DemoEvent("alert", _alert_sentence(alert))
            for alert in alerts
            if alert.state in _ALERT_STATES and self._is_new(alert.id, alert.state)
        ]

    def of_commands(self, commands: Iterable[Command]) -> list[DemoEvent]:
        return [
            DemoEvent("command", _command_sentence(command))
            for command in commands
            if self._is_new(command.id, command.state)
        ]

    def _is_new(self, key: str, state: str) -> bool:
        if self._last_states.get(key) == state:
            return False
        self._last_states[key] = state
        return True


def _alert_sentence(alert: Alert) -> str:
    state = _ALERT_STATES[alert.state]
    sentence = f"{alert.rule} ({alert.severity}) {state}, since step {alert.onset_step}"
    return f"{sentence}: {alert.summary}" if alert.state == "firing" and alert.summary else sentence


def _command_sentence(command: Command) -> str:
    kind = str(command.action.get("kind", "command")).replace("_", " ")
    before = command.action.get("before_step")
    what = f"{kind} to before step {before}" if before is not None else kind
    sentence = f"{what} {_COMMAND_STATES.get(command.state, command.state)}"
    return (
        sentence if command.ended_step is None else f"{sentence} before step {command.ended_step}"
    )
