"""`/alerts`: current and past alerts, each with its diagnosis card."""

from collections.abc import Mapping, Sequence
from typing import Final

from fastapi import APIRouter, Request, Response

from runwatch.alerts import AlertState
from runwatch.commands import ACTION_KINDS
from runwatch.rules import Rule
from runwatch.vocabulary import AlertId, RunId, Severity
from runwatch_server.alerts.actions.rungs import recovery_after
from runwatch_server.alerts.records import AlertFilter, AlertRecord
from runwatch_server.auth.guard import CurrentPrincipal, require_to_open
from runwatch_server.auth.keys import KeyScope
from runwatch_server.commands import event_queries as command_event_queries
from runwatch_server.commands.queries import find_addressee
from runwatch_server.commands.records import CommandRecord
from runwatch_server.notify.cases import labels_of_alert
from runwatch_server.notify.silences import Silence, list_silences
from runwatch_server.page.command_travel import Travel, travel_of
from runwatch_server.page.judged_curves import Curve, curves_of
from runwatch_server.page.people import names_of_keys
from runwatch_server.page.rendering import render
from runwatch_server.runbooks import runbook_url
from runwatch_server.runs.queries import count_ranks, find_runs
from runwatch_server.services import CurrentServices, Services
from runwatch_server.telemetry.queries import list_metrics
from runwatch_server.web.pagination import part_of

router: Final = APIRouter(include_in_schema=False)

_SHOWN: Final = 100
_SHOWS: Final = {
    "open": (AlertState.FIRING, AlertState.RECOVERING),
    "pending": (AlertState.PENDING,),
    "resolved": (AlertState.RESOLVED,),
    "all": (),
}


@router.get("/alerts", dependencies=[require_to_open(KeyScope.READ)])
async def show_alerts(
    request: Request,
    services: CurrentServices,
    principal: CurrentPrincipal,
    show: str = "open",
    severity: str = "",
    rule: str = "",
    project: str = "",
    run_id: str = "",
    before: str = "",
) -> Response:
    """Open alerts, worst first, or older ones, newest first."""
    within = principal.project or project
    wanted = AlertFilter(
        projects=(within,) if within else None,
        run_id=RunId(run_id) if run_id else None,
        states=_SHOWS.get(show, ()),
        severities=(Severity(severity),) if severity in tuple(Severity) else (),
        rule=rule or None,
        before_id=before or None,
    )
    found = await services.alerts.list(wanted, limit=_SHOWN + 1)
    shown, older = part_of(found, _SHOWN, lambda alert: alert.id)
    if show == "open":
        shown = sorted(shown, key=lambda alert: -alert.severity.gravity)
    return render(
        request,
        "alerts.html",
        alerts=shown,
        runs=await _names_of_runs(services, shown),
        names=await names_of_keys(services),
        chosen={
            "show": show,
            "severity": severity,
            "rule": rule,
            "project": within,
            "run_id": run_id,
        },
        older=older,
    )


@router.get("/alerts/{alert_id}", dependencies=[require_to_open(KeyScope.READ)])
async def show_alert(
    alert_id: AlertId, request: Request, services: CurrentServices, principal: CurrentPrincipal
) -> Response:
    """An alert's card: how it began, likely causes, what was done, with what result."""
    alert = await services.alerts.get(alert_id)
    principal.check_project(alert.project)
    run = await services.runs.find(alert.run_id, principal)
    card = await services.alerts.card(alert)
    rule = await _rule_of(services, alert)
    curves = await _curves(services, alert, rule)
    return render(
        request,
        "alert.html",
        alert=alert,
        card=card,
        run=run,
        curves=curves,
        facts=_facts(alert, rule, curves),
        trips=await _command_travels(services, alert, card.commands),
        silences=await _silences_of(services, alert, run.name),
        has_alertmanager=services.receivers.alertmanagers is not None,
        runbook=runbook_url(alert.facts.runbook),
        names=await names_of_keys(services),
    )


async def _rule_of(services: Services, alert: AlertRecord) -> Rule | None:
    """The rule of this name that is in force now, which may differ from the one that judged."""
    in_force = await services.rules.in_force(alert.project)
    return next((rule for rule in in_force.rules if rule.name == alert.rule), None)


async def _curves(services: Services, alert: AlertRecord, rule: Rule | None) -> list[Curve]:
    async with services.database.read() as connection:
        metrics = await list_metrics(connection, alert.run_id)
    return curves_of(alert, rule, metrics, await services.layouts.all(alert.run_id))


def _facts(alert: AlertRecord, rule: Rule | None, curves: Sequence[Curve]) -> dict[str, object]:
    """The data that the page's scripts need."""
    return {
        "id": alert.id,
        "run": alert.run_id,
        "rule": alert.rule,
        "project": alert.project,
        "severity": alert.severity.value,
        "attempt": alert.attempt,
        "segment": alert.segment,
        "rank": alert.rank,
        "onset": alert.onset_step,
        "fires": alert.firing_step,
        "over": alert.resolved_step,
        "is_rule_as_it_was": rule is not None and rule.hash == alert.rule_hash,
        "curves": [{"name": curve.name, "layer": curve.layer} for curve in curves],
    }


async def _names_of_runs(services: Services, alerts: Sequence[AlertRecord]) -> Mapping[RunId, str]:
    async with services.database.read() as connection:
        runs = await find_runs(connection, {alert.run_id for alert in alerts})
    return {run.id: run.name for run in runs}


async def _command_travels(
    services: Services, alert: AlertRecord, commands: Sequence[CommandRecord]
) -> list[Travel]:
    async with services.database.read() as connection:
        num_ranks = await count_ranks(connection, alert.run_id)
        addressee = await find_addressee(connection, alert.run_id)
        allow = ACTION_KINDS if addressee is None else addressee.allow
        policy = None if addressee is None else addressee.policy
        return [
            travel_of(
                command,
                await command_event_queries.list_events(connection, alert.run_id, command.id),
                num_ranks=num_ranks.get(command.attempt, 1),
                recovery=recovery_after(alert, command),
                allow=allow,
                policy=policy or services.settings.policy,
            )
            for command in commands
        ]


async def _silences_of(services: Services, alert: AlertRecord, run_name: str) -> list[Silence]:
    """The silences that hold back its messages now."""
    now = services.clock.wall()
    labels = labels_of_alert(alert, run_name, services.receivers.name)
    async with services.database.read() as connection:
        silences = await list_silences(connection, ending_after=now, projects=[alert.project])
    return [silence for silence in silences if silence.covers(labels, now=now)]
