"""`/alerts`: alerts, their diagnosis cards and acknowledgements."""

from datetime import datetime
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Depends, Query, Response

from runwatch.alerts import AlertState
from runwatch.nonfinite import JsonNumber
from runwatch.vocabulary import AlertId, RunId, Severity
from runwatch_server.alerts.diagnosis.card import DiagnosisView
from runwatch_server.alerts.records import (
    AlertEvent,
    AlertFilter,
    AlertRecord,
    PeakFacts,
    RunEvent,
    WidestFacts,
)
from runwatch_server.alerts.service import Card
from runwatch_server.auth.guard import CurrentPrincipal, require
from runwatch_server.auth.keys import KeyScope
from runwatch_server.clock import rfc3339, rfc3339_if_any
from runwatch_server.commands.api import CommandView, view_of
from runwatch_server.services import CurrentServices
from runwatch_server.web.bodies import documented, json_body, json_response
from runwatch_server.web.pagination import answer_of
from runwatch_server.web.parameters import NextToken

router: Final = APIRouter(prefix="/api/v1/alerts", tags=["alerts"])


class AlertView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    run_id: str
    project: str
    rule: str
    severity: str
    labels: dict[str, str]
    state: str
    live: bool
    """False if judged from frames that were sent afterwards."""
    attempt: int
    segment: int
    rank: int
    onset_step: int
    onset_at: datetime
    firing_step: int | None
    firing_at: datetime | None
    resolved_step: int | None
    resolved_at: datetime | None
    last_step: int
    value: JsonNumber
    first_layer: str | None
    worst_layer: str | None
    layers: tuple[str, ...]
    num_layers: int
    peak: PeakFacts | None
    widest: WidestFacts
    summary: str
    description: str
    runbook: str
    acked_at: datetime | None
    acked_by: str | None
    ack_note: str | None
    inhibited_by: str | None
    """The rule whose alert explains this one; nobody is told of this one then."""
    shadow: bool
    """Whether the rule is on trial: nobody is told and no action is taken."""
    resolution: str | None
    """Why it was closed; only `recovered` means that the run is healthy again. Null while open."""
    outcome: str
    """Where it settled, if it was closed as `settled_worse`: "loss settled at 2.6, five times its
    level before"; else empty."""
    recovery: str | None
    """After a command: `watched`, then `recovered`, `not_recovered` or `worse`; `not_applied` if
    the command failed, was rejected or came too late. Null without a command."""


class AlertEventView(msgspec.Struct, frozen=True):
    kind: str
    step: int | None
    at: datetime
    actor: str
    detail: dict[str, object]


class RunEventView(msgspec.Struct, frozen=True):
    kind: str
    step: int | None
    at: datetime
    source: str
    detail: dict[str, object]


class CardView(AlertView, frozen=True, kw_only=True):
    events: list[AlertEventView]
    commands: list[CommandView]
    changed_before: list[RunEventView]
    similar: list[AlertView]
    card: DiagnosisView


class AlertList(msgspec.Struct, frozen=True):
    alerts: list[AlertView]
    next_token: str | None = None
    judged: bool | None = None
    """With `run_id`: whether everything stored of this run has been judged, so that the list has
    all its alerts so far. Otherwise null."""


class Acknowledgement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    note: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    """What is being done about it; shown beside the alert."""


@router.get(
    "",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(answer=AlertList, refuses=[404]),
)
async def list_alerts(
    services: CurrentServices,
    principal: CurrentPrincipal,
    state: Annotated[list[AlertState] | None, Query()] = None,
    severity: Annotated[list[Severity] | None, Query()] = None,
    project: str | None = None,
    run_id: str | None = None,
    rule: str | None = None,
    acked: bool | None = None,
    inhibited: bool | None = None,
    shadow: bool | None = None,
    next_token: NextToken = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """Alerts that the caller may see, newest first."""
    if project is not None:
        principal.check_project(project)
    judged = None
    if run_id is not None:
        await services.runs.check_access(RunId(run_id), principal)
        judged = await services.alerts.is_judged(RunId(run_id))  # before the list, never after it
    within = project if project is not None else principal.project
    wanted = AlertFilter(
        projects=None if within is None else (within,),
        run_id=None if run_id is None else RunId(run_id),
        states=state or (),
        severities=severity or (),
        rule=rule,
        acked=acked,
        inhibited=inhibited,
        shadow=shadow,
        before_id=next_token,
    )
    found = await services.alerts.list(wanted, limit=limit + 1)
    shown, token = answer_of(found, limit, lambda alert: alert.id, _view)
    return json_response(AlertList(shown, token, judged))


@router.get(
    "/{alert_id}", dependencies=[require(KeyScope.READ)], openapi_extra=documented(answer=CardView)
)
async def get_alert(
    alert_id: AlertId, services: CurrentServices, principal: CurrentPrincipal
) -> Response:
    """An alert with its diagnosis card: where it began, what changed before, what was done and with
    what result."""
    alert = await services.alerts.get(alert_id)
    principal.check_project(alert.project)
    return json_response(_card_view(await services.alerts.card(alert)))


@router.post(
    "/{alert_id}/ack",
    dependencies=[require(KeyScope.CONTROL)],
    openapi_extra=documented(Acknowledgement, AlertView),
)
async def acknowledge_alert(
    alert_id: AlertId,
    services: CurrentServices,
    principal: CurrentPrincipal,
    given: Annotated[Acknowledgement, Depends(json_body(Acknowledgement))],
) -> Response:
    """Acknowledge an alert: somebody takes care of it."""
    alert = await services.alerts.get(alert_id)
    principal.check_project(alert.project)
    after = await services.alerts.acknowledge(alert_id, actor=principal.actor, note=given.note)
    return json_response(_view(after))


def _view(alert: AlertRecord) -> AlertView:
    facts = alert.facts
    return AlertView(
        id=alert.id,
        run_id=alert.run_id,
        project=alert.project,
        rule=alert.rule,
        severity=alert.severity.value,
        labels=dict(alert.labels),
        state=alert.state.value,
        live=alert.live,
        attempt=alert.attempt,
        segment=alert.segment,
        rank=alert.rank,
        onset_step=alert.onset_step,
        onset_at=rfc3339(alert.onset_at),
        firing_step=alert.firing_step,
        firing_at=rfc3339_if_any(alert.firing_at),
        resolved_step=alert.resolved_step,
        resolved_at=rfc3339_if_any(alert.resolved_at),
        last_step=alert.last_step,
        value=facts.value,
        first_layer=facts.first_layer,
        worst_layer=facts.worst_layer,
        layers=facts.layers,
        num_layers=facts.num_layers,
        peak=facts.peak,
        widest=facts.widest,
        summary=facts.summary,
        description=facts.description,
        runbook=facts.runbook,
        acked_at=rfc3339_if_any(alert.acked_at),
        acked_by=alert.acked_by,
        ack_note=alert.ack_note,
        inhibited_by=alert.inhibited_by,
        shadow=alert.shadow,
        resolution=alert.resolution,
        outcome=facts.outcome,
        recovery=alert.recovery,
    )


def _card_view(card: Card) -> CardView:
    return CardView(
        **msgspec.structs.asdict(_view(card.alert)),
        events=[_event_view(event) for event in card.events],
        commands=[view_of(command) for command in card.commands],
        changed_before=[_run_event_view(event) for event in card.changed_before],
        similar=[_view(alert) for alert in card.similar],
        card=card.diagnosis,
    )


def _event_view(event: AlertEvent) -> AlertEventView:
    return AlertEventView(
        kind=event.kind,
        step=event.step,
        at=rfc3339(event.at),
        actor=event.actor,
        detail=dict(event.detail),
    )


def _run_event_view(event: RunEvent) -> RunEventView:
    return RunEventView(
        kind=event.kind,
        step=event.step,
        at=rfc3339(event.at),
        source=event.source,
        detail=dict(event.detail),
    )
