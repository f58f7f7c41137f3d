"""`/rules`: the rules in force; writing rules, and trying them on past runs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request, Response

from runwatch.rules import IN_CODE
from runwatch_server.auth.guard import CurrentPrincipal, require_to_open
from runwatch_server.auth.keys import KeyScope, Principal
from runwatch_server.page.people import names_of_keys
from runwatch_server.page.rendering import render
from runwatch_server.page.rule_texts import NEW_RULE, RuleLine, as_yaml, changes, line_of
from runwatch_server.rules.pack import BUILTIN
from runwatch_server.rules.queries import RuleRecord, RuleVersion, list_versions
from runwatch_server.runbooks import first_sentence, runbook_url
from runwatch_server.services import CurrentServices, Services

router: Final = APIRouter(include_in_schema=False)

_RUNS_OFFERED: Final = 100
_NEWEST_TRIED: Final = 5
"""Number of runs that one click tries, one after the other."""
_VERSIONS_SHOWN: Final = 50

_IN_CODE: Final = {
    line.id: line
    for line in (
        RuleLine(
            id=f"{BUILTIN}{rule.name}",
            name=rule.name,
            source="builtin",
            project=None,
            severity=rule.severity.value,
            scope=rule.scope.value,
            when=rule.text,
            in_words=True,
            enabled=True,
            runbook=rule.runbook,
        )
        for rule in IN_CODE
    )
}
"""Listed apart, before the others: they have no expression, and nobody can change them."""


@dataclass(frozen=True, slots=True)
class Change:
    """A version and its changes to the text."""

    version: RuleVersion
    lines: list[tuple[str, str]]


@router.get("/rules", dependencies=[require_to_open(KeyScope.READ)])
async def show_rules(
    request: Request, services: CurrentServices, principal: CurrentPrincipal
) -> Response:
    records = await services.rules.list_all(principal.project)
    own = [_own_line(record) for record in records]
    own_names = {line.name for line in own if line.project in (None, principal.project)}
    builtin = [
        replace(line, is_replaced=line.name in own_names) for line in _builtin_lines(services)
    ]
    return render(request, "rules.html", own=own, builtin=builtin)


@router.get("/rules/new", dependencies=[require_to_open(KeyScope.READ)])
async def show_new_rule(
    request: Request,
    services: CurrentServices,
    principal: CurrentPrincipal,
    like: str = "",
) -> Response:
    """An editor with an example, or with another rule to start from."""
    text = NEW_RULE if not like else as_yaml(_builtin_document(services, like))
    return await _editor(request, services, principal, text=text, record=None, builtin=None)


@router.get("/rules/{rule_id}", dependencies=[require_to_open(KeyScope.READ)])
async def show_rule(
    rule_id: str, request: Request, services: CurrentServices, principal: CurrentPrincipal
) -> Response:
    """A rule: its owner can change it here, and everybody can try it."""
    if (line := _IN_CODE.get(rule_id)) is not None:
        return await _editor(request, services, principal, text="", record=None, builtin=line)
    if rule_id.startswith(BUILTIN):
        document = _builtin_document(services, rule_id)
        line = _builtin_line(document)
        return await _editor(
            request, services, principal, text=as_yaml(document), record=None, builtin=line
        )
    record = await services.rules.get(rule_id)
    if record.project:
        principal.check_project(record.project)
    text = as_yaml(_document(record))
    return await _editor(request, services, principal, text=text, record=record, builtin=None)


async def _editor(
    request: Request,
    services: Services,
    principal: Principal,
    *,
    text: str,
    record: RuleRecord | None,
    builtin: RuleLine | None,
) -> Response:
    line = builtin if record is None else _own_line(record)
    runs = await services.runs.list_runs(
        principal, project=None, state=None, before=None, limit=_RUNS_OFFERED
    )
    return render(
        request,
        "rule.html",
        text=text,
        record=record,
        line=line,
        is_protected=builtin is not None and builtin.id in _IN_CODE,
        is_writable=_is_writable(principal, record),
        runs=[run for run in runs if run.last_step is not None],
        newest=_NEWEST_TRIED,
        runbook="" if line is None else runbook_url(line.runbook),
        history=[] if record is None else await _history(services, record),
        names=await names_of_keys(services),
    )


def _is_writable(principal: Principal, record: RuleRecord | None) -> bool:
    if not principal.allows(KeyScope.ADMIN):
        return False
    return principal.project is None or record is None or record.project == principal.project


async def _history(services: Services, record: RuleRecord) -> list[Change]:
    async with services.database.read() as connection:
        versions = await list_versions(connection, record.id, limit=_VERSIONS_SHOWN)
    texts = [as_yaml(msgspec.json.decode(version.document)) for version in versions]
    return [
        Change(version, changes(before, after) if before else [])
        for version, after, before in zip(versions, texts, [*texts[1:], ""], strict=True)
    ]


def _document(record: RuleRecord) -> dict[str, Any]:
    return msgspec.json.decode(record.document, type=dict[str, Any])


def _own_line(record: RuleRecord) -> RuleLine:
    return line_of(
        record.id,
        _document(record),
        source="user",
        project=record.project or None,
        enabled=record.enabled,
    )


def _builtin_lines(services: Services) -> list[RuleLine]:
    return [*_IN_CODE.values(), *(_builtin_line(filed.file) for filed in services.rules.builtin)]


def _builtin_line(document: Mapping[str, Any]) -> RuleLine:
    line = line_of("", document, source="builtin")
    return replace(line, id=f"{BUILTIN}{line.name}", says=first_sentence(line.runbook))


def _builtin_document(services: Services, rule_id: str) -> dict[str, Any]:
    return dict(services.rules.find_builtin(rule_id.removeprefix(BUILTIN)).file)
