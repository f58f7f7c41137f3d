"""Alerts, what happens to them, and how far judging has come, as they are kept."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from runwatch.alerts import AlertState
from runwatch.ladders import Rung
from runwatch.nonfinite import JsonNumber
from runwatch.rules.diagnosis import Sign
from runwatch.vocabulary import AlertId, RunId, Severity

OPEN_STATES = (AlertState.PENDING, AlertState.FIRING, AlertState.RECOVERING)


class Recovery(StrEnum):
    """Whether the run recovered after a command that the alert brought about was applied."""

    WATCHED = "watched"
    RECOVERED = "recovered"
    NOT_RECOVERED = "not_recovered"
    WORSE = "worse"
    """It went on, and became so much worse that it was told anew."""
    NOT_APPLIED = "not_applied"
    """The command failed, the trainer refused it, or it did not come to it in time."""

    @property
    def is_bad(self) -> bool:
        """Whether it is time for something else."""
        return self in (Recovery.NOT_RECOVERED, Recovery.WORSE)


class Resolution(StrEnum):
    """Why an alert was closed. Only the first says that the run is well again."""

    RECOVERED = "recovered"
    RUN_ENDED = "run_ended"
    """The condition still held, or had not been over for long enough, when the run ended."""
    ATTEMPT_ENDED = "attempt_ended"
    """A newer attempt began, with a clean sheet."""
    RULE_CHANGED = "rule_changed"
    """The rule was changed or removed."""


class PeakFacts(msgspec.Struct, frozen=True):
    """The worst value since the onset."""

    value: JsonNumber
    step: int
    layer: str | None = None


class WidestFacts(msgspec.Struct, frozen=True):
    """The most layers that failed at once since the onset; named are the worst of them."""

    num_layers: int = 0
    layers: tuple[str, ...] = ()


class CauseFacts(msgspec.Struct, frozen=True):
    """What may have brought it about, and the signs that would speak for it."""

    cause: str
    signs: tuple[Sign, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What an alert says, as its last transition had it."""

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
    causes: tuple[CauseFacts, ...] = ()
    try_first: str = ""
    worked_if: str = ""
    ladder: tuple[Rung, ...] = ()
    """What the rule asks for, one after another, while the run does not recover."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRecord:
    """An alert as it is kept."""

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
    """The first step trained after the command that was to cure it, and the segment it is of."""
    acted_segment: int | None = None
    rung: int | None = None
    """Of its ladder, the one that was tried or passed over last; None: none yet."""
    inhibited_by: str | None = None
    """The rule whose alert explains this one."""
    shadow: bool = False
    resolution: Resolution | None = None
    """None while it is open."""

    @property
    def is_told(self) -> bool:
        """Whether people are to hear of it as it is now."""
        return self.inhibited_by is None and not self.shadow


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertEvent:
    """One thing that happened to an alert."""

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
    """Something that happened to the run itself."""

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
    """Which alerts are asked for; what is empty does not narrow."""

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
