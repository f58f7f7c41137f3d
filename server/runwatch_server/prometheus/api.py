"""`/prometheus/api/v1/alerts` and `/rules`: what Grafana's alert list, and other tools, request
from a Prometheus data source.

There are only these two routes: series over time are on `/metrics`, for a real Prometheus.
"""

from collections import defaultdict
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Query, Response

from runwatch_server.auth.guard import CurrentPrincipal, require
from runwatch_server.auth.keys import KeyScope, Principal
from runwatch_server.notify.cases import Case
from runwatch_server.prometheus.grouping import Wanted, groups_of, narrowed, placed_rules
from runwatch_server.prometheus.queries import list_open_cases
from runwatch_server.prometheus.shapes import (
    AlertAnswer,
    AlertData,
    PromAlert,
    RuleAnswer,
    RuleData,
    alert_of,
)
from runwatch_server.services import CurrentServices, Services
from runwatch_server.web.bodies import documented, json_response

router: Final = APIRouter(prefix="/prometheus/api/v1", tags=["prometheus"])

MAX_ALERTS: Final = 1000
_CUT: Final = [f"More than {MAX_ALERTS} alerts are open: the newest are shown."]

Names = Annotated[list[str] | None, Query(max_length=200)]


class RuleKind(StrEnum):
    """Prometheus' `type` of rule; there are no recording rules here."""

    ALERT = "alert"
    RECORD = "record"


class RuleState(StrEnum):
    FIRING = "firing"
    PENDING = "pending"
    INACTIVE = "inactive"


@router.get(
    "/alerts", dependencies=[require(KeyScope.READ)], openapi_extra=documented(answer=AlertAnswer)
)
async def list_alerts(services: CurrentServices, principal: CurrentPrincipal) -> Response:
    """Open alerts in Prometheus' form. A key that is bound to a project sees only its alerts."""
    cases, warnings = await _open_cases(services, principal)
    alerts = [_alert(services, case) for case in cases]
    return json_response(AlertAnswer("success", AlertData(alerts), warnings))


@router.get(
    "/rules", dependencies=[require(KeyScope.READ)], openapi_extra=documented(answer=RuleAnswer)
)
async def list_rules(
    services: CurrentServices,
    principal: CurrentPrincipal,
    type: RuleKind | None = None,
    rule_name: Annotated[Names, Query(alias="rule_name[]")] = None,
    rule_group: Annotated[Names, Query(alias="rule_group[]")] = None,
    file: Annotated[Names, Query(alias="file[]")] = None,
    state: Annotated[list[RuleState] | None, Query(max_length=3)] = None,
    exclude_alerts: bool = False,
) -> Response:
    """The rules in force by group, each with its open alerts. `state`, a parameter of Grafana's
    that Prometheus does not have, selects rules in these states."""
    if type is RuleKind.RECORD:
        return json_response(RuleAnswer("success", RuleData([])))
    cases, warnings = await _open_cases(services, principal)
    alerts: defaultdict[tuple[str, str], list[PromAlert]] = defaultdict(list)
    for case in cases:
        alerts[case.alert.project, case.alert.rule].append(_alert(services, case))
    records = await services.rules.list_all(principal.project)
    groups = groups_of(
        placed_rules(services.rules.builtin, records),
        alerts,
        is_judged=not services.evaluators.health.failing_runs,
        now=services.clock.wall(),
    )
    wanted = Wanted(names=rule_name, groups=rule_group, files=file, states=state)
    groups = narrowed(groups, wanted)
    if exclude_alerts:
        bare = msgspec.structs.replace
        groups = [
            bare(group, rules=[bare(one, alerts=[]) for one in group.rules]) for group in groups
        ]
    return json_response(RuleAnswer("success", RuleData(groups), warnings))


async def _open_cases(services: Services, principal: Principal) -> tuple[Sequence[Case], list[str]]:
    """The newest open alerts, and a warning if there are more."""
    async with services.database.read() as connection:
        found = await list_open_cases(connection, project=principal.project, limit=MAX_ALERTS + 1)
    return found[:MAX_ALERTS], _CUT if len(found) > MAX_ALERTS else []


def _alert(services: Services, case: Case) -> PromAlert:
    config, now = services.receivers, services.clock.wall()
    return alert_of(case, watchdog=config.name, url=config.url, now=now)
