"""How a transition of its rule changes an alert, as pure functions of values."""

from dataclasses import replace
from typing import Final

import msgspec

from runwatch.alerts import AlertState, Reason
from runwatch.nonfinite import to_json
from runwatch.rules import Transition
from runwatch_server.alerts.records import (
    AlertRecord,
    CauseFacts,
    Facts,
    PeakFacts,
    Resolution,
    WidestFacts,
)

WITHOUT_CHANGE_OF_STATE: Final = (Reason.INHIBITED, Reason.RELEASED, Reason.WORSENED)
"""Reasons for which an alert is reported again although its state stays the same."""


def advance(alert: AlertRecord, transition: Transition) -> AlertRecord:
    """The alert after a transition; its facts stay those of its worst moment."""
    after = replace(alert, state=transition.state, last_step=transition.step)
    if transition.state.is_open:
        after = replace(after, inhibited_by=transition.inhibited_by)
    if transition.state in (AlertState.PENDING, AlertState.FIRING):
        after = replace(after, facts=_facts(transition))
    else:
        worst = msgspec.structs.replace(
            alert.facts,
            peak=_peak(transition),
            widest=_widest(transition),
            outcome=transition.outcome,
        )
        after = replace(after, facts=worst)
    if transition.state is AlertState.FIRING and alert.firing_step is None:
        return replace(after, firing_step=transition.step, firing_at=transition.at)
    if transition.state is AlertState.RESOLVED:
        return replace(
            after,
            resolved_step=transition.step,
            resolved_at=transition.at,
            resolution=_resolution(transition.reason),
        )
    return after


def is_news(before: AlertRecord, transition: Transition) -> bool:
    """Whether a transition changes a known alert."""
    if before.state is AlertState.RESOLVED:
        return False
    if transition.reason is Reason.WORSENED:
        return before.facts.peak != _peak(transition) or before.facts.widest != _widest(transition)
    if transition.reason in WITHOUT_CHANGE_OF_STATE:
        return before.inhibited_by != transition.inhibited_by
    return before.state is not transition.state


def _resolution(reason: Reason) -> Resolution:
    match reason:
        case Reason.ENDED:
            return Resolution.ATTEMPT_ENDED
        case Reason.SETTLED_WORSE:
            return Resolution.SETTLED_WORSE
        case _:
            return Resolution.RECOVERED


def _facts(transition: Transition) -> Facts:
    return Facts(
        value=to_json(transition.value),
        first_layer=transition.first_layer,
        worst_layer=transition.worst_layer,
        layers=transition.layers,
        num_layers=transition.num_layers,
        peak=_peak(transition),
        widest=_widest(transition),
        summary=transition.summary,
        description=transition.description,
        runbook=transition.runbook,
        reason=transition.reason,
        causes=tuple(CauseFacts(cause.text, cause.signs) for cause in transition.causes),
        try_first=transition.try_first,
        worked_if=transition.worked_if,
        ladder=transition.ladder,
        stalled=transition.stalled,
    )


def _peak(transition: Transition) -> PeakFacts | None:
    peak = transition.peak
    return None if peak is None else PeakFacts(to_json(peak.value), peak.step, peak.layer)


def _widest(transition: Transition) -> WidestFacts:
    return WidestFacts(transition.widest.num_layers, transition.widest.layers)
