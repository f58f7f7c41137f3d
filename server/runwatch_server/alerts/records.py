"""The values that are stored about alerts, their events and the progress of judging."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from runwatch.alerts import AlertState
from runwatch.ladders import Rung
from runwatch.nonfinite import JsonNumber
from runwatch.rules.diagnosis import Sign
from runwatch.stalls import StalledRank
from runwatch.vocabulary import AlertId, RunId, Severity

OPEN_STATES = (AlertState.PENDING, AlertState.FIRING, AlertState.RECOVERING)


class Recovery(StrEnum):
    """Whether the run recovered after a command that the alert caused was applied."""

    WATCHED = "watched"
    RECOVERED = "recovered"
    NOT_RECOVERED = "not_recovered"
    WORSE = "worse"
    """The alert went on, and became so much worse that people were notified again."""
    NOT_APPLIED = "not_applied"
    """The command failed, was rejected by the trainer or reached it too late."""

    @property
    def is_bad(self) -> bool:
        """Whether something else has to be tried."""
        return self in (Recovery.NOT_RECOVERED, Recovery.WORSE)


class Resolution(StrEnum):
    """Why an alert was closed. Only the first means that the run is healthy again."""

    RECOVERED = "recovered"
    SETTLED_WORSE = "settled_worse"
    """The condition is over, but what the rule looks at is not back within what it was before."""
    RUN_ENDED = "run_ended"
    """When the run ended, the condition still held, or had not been over for long enough."""
    ATTEMPT_ENDED = "attempt_ended"
    """A newer attempt began; it starts afresh."""
    RULE_CHANGED = "rule_changed"
    """The rule was changed or removed."""


LEFT = (Resolution.RUN_ENDED, Resolution.SETTLED_WORSE)
"""How alerts end that leave their run in trouble until somebody has acknowledged them."""


class PeakFacts(msgspec.Struct, frozen=True):
    """The worst value since the onset."""

    value: JsonNumber
    step: int
    layer: str | None = None


class WidestFacts(msgspec.Struct, frozen=True):
    """The most layers that failed at once since the onset, with the names of the worst."""

    num_layers: int = 0
    layers: tuple[str, ...] = ()


class CauseFacts(msgspec.Struct, frozen=True):
    """A possible cause, and the signs that would support it."""

    cause: str
    signs: tuple[Sign, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What an alert says, as of its last transition."""

    value: JsonNumber = None
    first_layer: str | None = None
    worst_layer: str | None = None
    layers: tuple[str, ...] = ()
    num_layers: int = 0
    peak: PeakFacts | None = None
    widest: WidestFacts = WidestFacts()
    summary: str = ""
    description: str = ""
    runbook: str = ""
    reason: str = ""
    outcome: str = ""
    """Where it settled, if that is worse than before the onset: "loss settled at 2.6, five times
    its level before"."""
    causes: tuple[CauseFacts, ...] = ()
    try_first: str = ""
    worked_if: str = ""
    ladder: tuple[Rung, ...] = ()
    """The actions that the rule asks for, one after another, while the run does not recover."""
    stalled: tuple[StalledRank, ...] = ()
    """Where ranks stood when a rule about missing steps fired, those apart first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRecord:
    """An alert as it is stored."""

    run_id: RunId
    id: AlertId
    project: str
    episode: str
    rule: str
    rule_hash: str
    severity: Severity
    labels: Mapping[str, str]
    state: AlertState
    live: bool
    attempt: int
    segment: int
    rank: int
    onset_step: int
    onset_at: float
    last_step: int
    facts: Facts
    created_at: float
    firing_step: int | None = None
    firing_at: float | None = None
    resolved_step: int | None = None
    resolved_at: float | None = None
    acked_at: float | None = None
    acked_by: str | None = None
    ack_note: str | None = None
    recovery: Recovery | None = None
    acted_step: int | None = None
    """The first step trained after the command that was to cure the alert, and that step's
    segment."""
    acted_segment: int | None = None
    rung: int | None = None
    """The last rung of its ladder that was tried or skipped; None if none was."""
    inhibited_by: str | None = None
    """The rule whose alert explains this one."""
    shadow: bool = False
    resolution: Resolution | None = None
    """None while it is open."""

    @property
    def is_notifiable(self) -> bool:
        """Whether people are notified of the alert in its current state."""
        return self.inhibited_by is None and not self.shadow


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertEvent:
    """An event of an alert."""

    number: int
    run_id: RunId
    alert_id: AlertId
    kind: str
    step: int | None
    at: float
    actor: str
    detail: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """An event of the run itself."""

    step: int | None
    kind: str
    at: float
    source: str
    detail: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How far one stream of frames has been judged."""

    run_id: RunId
    attempt: int
    rank: int
    evaluated_seq: int
    state_seq: int
    state: bytes
    rule_set: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFilter:
    """Selects alerts; an empty field does not restrict."""

    projects: Collection[str] | None = None
    run_id: RunId | None = None
    states: Sequence[AlertState] = field(default_factory=lambda: ())
    severities: Sequence[Severity] = field(default_factory=lambda: ())
    rule: str | None = None
    acked: bool | None = None
    inhibited: bool | None = None
    shadow: bool | None = None
    resolution: Resolution | None = None
    before_id: str | None = None
