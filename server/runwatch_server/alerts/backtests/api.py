"""`/rules/backtest`: the alerts that rules would have raised on a stored run."""

import asyncio
from functools import partial
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Depends, Request, Response
from starlette.requests import ClientDisconnect

from runwatch.errors import RuleError
from runwatch.frames import MAX_STEP
from runwatch.rules import Rule
from runwatch.rules.background import known_from
from runwatch.vocabulary import RunId
from runwatch_server.alerts.backtests.turns import BacktestTurns
from runwatch_server.auth.guard import CurrentPrincipal, require
from runwatch_server.auth.keys import KeyScope
from runwatch_server.errors import OverloadedError, UnprocessableError
from runwatch_server.importing.parcels import HAS_TIMES
from runwatch_server.rules.backtest import Backtest, BacktestReply, summary_of
from runwatch_server.rules.documents import located, parse_yaml
from runwatch_server.rules.pack import split_file
from runwatch_server.services import CurrentServices, Services
from runwatch_server.web.bodies import documented, json_body, json_response
from runwatch_server.web.parameters import check_span
from runwatch_server.web.zero_bytes import check_texts

router: Final = APIRouter(prefix="/api/v1/rules", tags=["rules"])

_Step = Annotated[int, msgspec.Meta(ge=0, le=MAX_STEP)]


class BacktestOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    run_id: str
    """The stored run to judge."""
    rules: dict[str, object] | str | None = None
    """A rule file as a JSON document or as YAML text; null: the rules in force."""
    first_step: _Step | None = None
    """First step to judge; null: from the beginning."""
    last_step: _Step | None = None
    """Last step to judge; null: to the end."""


@router.post(
    "/backtest",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=documented(BacktestOrder, BacktestReply, refuses=[404]),
)
async def backtest(
    request: Request,
    services: CurrentServices,
    principal: CurrentPrincipal,
    wanted: Annotated[BacktestOrder, Depends(json_body(BacktestOrder))],
) -> Response:
    """Judge rank 0 of a stored run, attempt by attempt, as it arrived. Changes nothing."""
    check_span(wanted.first_step, wanted.last_step, place="body", ends="first_step, last_step")
    run = await services.runs.find(RunId(wanted.run_id), principal)
    rules = await _rules(services, run.project, wanted.rules)
    test = Backtest.of_rules(rules, known_from(run.config))
    test.has_times = run.config.get(HAS_TIMES) is not False
    turns = BacktestTurns(test, wanted.first_step, wanted.last_step)
    with services.backtests.place(principal.key_id):
        await services.backtests.judge(run.id, turns, partial(_check_goes_on, services, request))
    if test.num_rows == 0:
        raise UnprocessableError("nothing_stored", "None of the requested steps are stored.")
    found = [test.result(run.id)]
    return json_response(BacktestReply(found, summary_of(found)))


async def _check_goes_on(services: Services, request: Request) -> None:
    """Raises ClientDisconnect if nobody waits for the answer any more, and OverloadedError if the
    service is about to stop."""
    if await request.is_disconnected():
        raise ClientDisconnect
    if not services.announcer.is_open:
        raise OverloadedError("stopping", "The service is stopping.", retry_after_s=5)


async def _rules(
    services: Services, project: str, given: dict[str, object] | str | None
) -> tuple[Rule, ...]:
    if given is None:
        return (await services.rules.in_force(project)).rules
    return await asyncio.to_thread(_rules_of, given)


def _rules_of(given: dict[str, object] | str) -> tuple[Rule, ...]:
    """Raises RuleError."""
    document, lines = parse_yaml(given) if isinstance(given, str) else (given, {})
    check_texts("rules", document)
    try:
        return tuple(filed.rule for filed in split_file(document))
    except RuleError as error:
        raise located(error, lines) from error
