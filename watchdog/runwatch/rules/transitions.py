"""What an evaluator reports: that one alert changed its state, with all that a reader will ask."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from runwatch.alerts import AlertState, Reason
from runwatch.commands import AnyAction
from runwatch.ladders import Rung
from runwatch.rules.diagnosis import Cause
from runwatch.rules.episodes import Peak, Widest
from runwatch.stalls import StalledRank
from runwatch.vocabulary import Severity

MAX_LAYERS_NAMED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One change of one alert's state."""

    rule: str
    severity: Severity
    labels: Mapping[str, str]
    state: AlertState
    """The state entered."""
    reason: Reason
    attempt: int
    segment: int
    """Of the onset."""
    step: int
    """At which the state was entered."""
    at: float
    onset_step: int
    onset_at: float
    value: float
    """What the rule looks at, at this step: of the worst layer where it looks at layers."""
    first_layer: str | None = None
    """Where it began; None where the rule looks at no layers."""
    worst_layer: str | None = None
    layers: tuple[str, ...] = ()
    """The failing layers, worst first, at most MAX_LAYERS_NAMED."""
    num_layers: int = 0
    """How many are failing."""
    summary: str
    description: str = ""
    runbook: str = ""
    causes: tuple[Cause, ...] = ()
    try_first: str = ""
    worked_if: str = ""
    actions: tuple[AnyAction, ...] = ()
    """What the rule asks for; to be considered when the state is `firing`."""
    ladder: tuple[Rung, ...] = ()
    """What it asks for after that, one after another, while the run does not recover."""
    peak: Peak | None = None
    """The worst since the onset."""
    widest: Widest = field(default_factory=Widest)
    """The most layers that failed at once since the onset."""
    stalled: tuple[StalledRank, ...] = ()
    """Where ranks stood when a rule about missing steps fired, those apart first."""
    outcome: str = ""
    """Where it settled, in words, if that is worse than before the onset."""
    inhibited_by: str | None = None
    """The rule whose alert explains this one, which is shown under it and sent to nobody."""
    shadow: bool = False
    """The rule is on trial: its alerts are sent to nobody, and its actions are not considered."""
    episode: str
    """The same through one alert's life, and the same whenever the data are judged again."""


def episode_id(
    rule: str, labels: Mapping[str, str], *, attempt: int, segment: int, onset_step: int
) -> str:
    """32 hexadecimal digits that name one alert's life."""
    identity = [rule, sorted(labels.items()), attempt, segment, onset_step]
    return hashlib.sha256(msgspec.json.encode(identity)).hexdigest()[:32]
