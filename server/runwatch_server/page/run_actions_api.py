"""`/runs/{run_id}/actions`: manual actions on a run, as a part that the run's page keeps fresh."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from runwatch.commands import ACTION_KINDS, CommandState
from runwatch.vocabulary import AlertId, PolicyMode
from runwatch_server.alerts.actions.rungs import recovery_after
from runwatch_server.alerts.queries import find_alerts
from runwatch_server.alerts.records import AlertRecord, Recovery
from runwatch_server.auth.guard import CurrentPrincipal, require_to_open
from runwatch_server.auth.keys import KeyScope, Principal
from runwatch_server.commands import event_queries as command_event_queries
from runwatch_server.commands import queries
from runwatch_server.commands.records import Addressee, CommandRecord
from runwatch_server.page.command_travel import Travel, travel_of
from runwatch_server.page.people import names_of_keys
from runwatch_server.page.rendering import render
from runwatch_server.runs.access import VisibleRun
from runwatch_server.runs.checks import run_not_found
from runwatch_server.runs.queries import Run, count_ranks
from runwatch_server.services import CurrentServices, Services

router: Final = APIRouter(include_in_schema=False)

_SHOWN: Final = 8
_LABELS: Final = {
    "checkpoint": "Checkpoint",
    "detail": "Look closely",
    "lower_lr": "Lower the learning rate",
    "rollback": "Roll back",
    "stop": "Stop",
}
POLICY_WORDS: Final = {
    PolicyMode.OBSERVE: "rules only propose",
    PolicyMode.ASK: "rules ask a person first",
    PolicyMode.AUTO: "rules act within their budgets",
}


@dataclass(frozen=True, slots=True)
class ActionButton:
    """A kind of action that can be ordered."""

    kind: str
    label: str
    is_allowed: bool
    """Whether the trainer allows it."""


@router.get("/runs/{run_id}/actions", dependencies=[require_to_open(KeyScope.READ)])
async def show_actions(
    run: VisibleRun, request: Request, services: CurrentServices, principal: CurrentPrincipal
) -> Response:
    actions = await actions_on_run(services, run, principal)
    return render(request, "actions.html", run=run, **actions)


@router.get("/runs/{run_id}/act", dependencies=[require_to_open(KeyScope.READ)])
async def show_act(
    run: VisibleRun,
    request: Request,
    services: CurrentServices,
    principal: CurrentPrincipal,
    step: int | None = None,
) -> Response:
    """The same as a page of its own, quick on a phone; `step`: to roll back to before it."""
    actions = await actions_on_run(services, run, principal)
    return render(request, "act.html", run=run, step=step, **actions)


async def actions_on_run(services: Services, run: Run, principal: Principal) -> dict[str, Any]:
    """The template's values beside the run."""
    trips, addressee = await _command_travels(services, run)
    proposals = [trip for trip in trips if trip.command.state is CommandState.PROPOSED]
    return {
        "buttons": _buttons(addressee),
        "refused": [kind for kind in ACTION_KINDS if kind not in addressee.allow],
        "objection": _objection(addressee, may_control=principal.allows(KeyScope.CONTROL)),
        "proposals": proposals,
        "moving": [trip for trip in trips if trip.is_under_way and trip not in proposals],
        "ended": [trip for trip in trips if not trip.is_under_way],
        "num_ranks": addressee.num_ranks,
        "policy": run.policy or services.settings.policy,
        "policies": POLICY_WORDS,
        "names": await names_of_keys(services),
    }


def _buttons(addressee: Addressee) -> list[ActionButton]:
    """One button for each kind of action."""
    return [
        ActionButton(kind, _LABELS[kind], is_allowed=kind in addressee.allow)
        for kind in ACTION_KINDS
    ]


def _objection(addressee: Addressee, *, may_control: bool) -> str:
    """Why nothing can be ordered now; empty if something can."""
    if addressee.state.is_ended:
        return "The run has ended: no trainer would obey."
    if addressee.attempt == 0:
        return "The run has no attempt yet: no trainer would obey."
    if not may_control:
        return "Your key can only read: this needs one with the scope control."
    return ""


async def _command_travels(services: Services, run: Run) -> tuple[list[Travel], Addressee]:
    async with services.database.read() as connection:
        addressee = await queries.find_addressee(connection, run.id)
        if addressee is None:  # removed since the run was found
            raise run_not_found(run.id)
        commands = await queries.list_commands(connection, run.id, limit=_SHOWN)
        ids = {command.alert_id for command in commands if command.alert_id is not None}
        alerts = await find_alerts(connection, ids)
        num_ranks = await count_ranks(connection, run.id)
        trips = [
            travel_of(
                command,
                await command_event_queries.list_events(connection, run.id, command.id),
                num_ranks=num_ranks.get(command.attempt, 1),
                recovery=_recovery(command, alerts),
                allow=addressee.allow,
                policy=addressee.policy or services.settings.policy,
            )
            for command in commands
        ]
    return trips, addressee


def _recovery(command: CommandRecord, alerts: Mapping[AlertId, AlertRecord]) -> Recovery | None:
    """The recovery of the alert that caused a command."""
    alert = None if command.alert_id is None else alerts.get(command.alert_id)
    return None if alert is None else recovery_after(alert, command)
