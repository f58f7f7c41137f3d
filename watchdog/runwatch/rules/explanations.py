"""What may be a consequence of what, among alerts: by gravity, onset and layers."""

from dataclasses import dataclass

from runwatch.rules.rule import Inhibition
from runwatch.rules.transitions import Transition
from runwatch.vocabulary import Scope, Severity


@dataclass(frozen=True, slots=True)
class Explanation:
    """A rule's alert that may explain others, as it stands or was last."""

    severity: Severity
    onset_step: int
    last_step: int
    """At which it was resolved; while it is open, of its last transition."""
    is_open: bool
    layers: tuple[str, ...]
    num_layers: int
    inhibited_by: str | None = None
    """What had explained it when it was over; of one that is open its own last word says so."""


def may_explain(source: Explanation, edge: Inhibition, reported: Transition) -> bool:
    """Whether an alert may be a consequence of another, by gravity, onset and layers."""
    return (
        source.severity.gravity >= reported.severity.gravity
        and reported.onset_step >= source.onset_step - edge.within_steps
        and (edge.scope is not Scope.LAYER or _covers(source, reported))
    )


def _covers(source: Explanation, reported: Transition) -> bool:
    """Whether every layer that an alert names fails there too."""
    more_than_named = source.num_layers > len(source.layers)
    return more_than_named or set(reported.layers) <= set(source.layers)
