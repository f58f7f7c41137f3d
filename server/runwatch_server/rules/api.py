"""`/rules`: the built-in rules and people's own, and a check of rule files."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Depends, Header, Query, Request, Response

from runwatch.errors import Fault, RuleError
from runwatch.rules import IN_CODE
from runwatch_server.auth.guard import CurrentPrincipal, require
from runwatch_server.auth.keys import KeyScope
from runwatch_server.clock import rfc3339
from runwatch_server.errors import (
    ConflictError,
    ForbiddenError,
    UnprocessableError,
    VersionMissingError,
)
from runwatch_server.rules.documents import Lines, located, parse_yaml
from runwatch_server.rules.pack import BUILTIN, FiledRule, split_file
from runwatch_server.rules.queries import RuleRecord
from runwatch_server.rules.service import refuse_protected
from runwatch_server.services import CurrentServices, Services
from runwatch_server.web.bodies import documented, json_response
from runwatch_server.web.zero_bytes import check_texts

router: Final = APIRouter(prefix="/api/v1/rules", tags=["rules"])

_KINDS: Final = ("application/json", "application/yaml")
_FILE: Final = {"type": "object", "description": "A rule file"}
_EXPECTED: Final = {
    "requestBody": {
        "required": True,
        "content": {kind: {"schema": _FILE} for kind in _KINDS},
    }
}
_OF_ANY_KIND: Final = {
    "requestBody": {
        "content": {
            kind: {"schema": {"description": "A rule file, valid or not"}} for kind in _KINDS
        }
    }
}
"""The check accepts any body, even an empty one, and says what is wrong with it."""
_IN_CODE: Final = {rule.name: FiledRule(rule, rule.document) for rule in IN_CODE}
"""Rules written in code, shown like the others. Their document describes them, but cannot be loaded
as a rule file."""


class RuleView(msgspec.Struct, frozen=True):
    id: str
    """A ULID, or `builtin:` and the name for a built-in rule."""
    name: str
    source: str
    """`builtin` or `user`."""
    project: str | None
    """The project it holds for; null: every project."""
    version: int
    enabled: bool
    in_force: bool
    """Whether it judges: it is enabled, and no other rule of its name comes before it. A project's
    own comes before one for every project, and that before a built-in one."""
    document: dict[str, object]
    """A rule file with this rule alone."""
    updated_at: datetime | None = None
    updated_by: str | None = None


class RuleList(msgspec.Struct, frozen=True):
    rules: list[RuleView]


@dataclass(frozen=True, slots=True)
class FileBody:
    """A rule file from a request's body."""

    document: object
    lines: Lines

    async def split(self) -> tuple[FiledRule, ...]:
        """Its rules. Raises RuleError with every fault and, for YAML, its line and column."""
        return await asyncio.to_thread(self._split)  # takes a second for the largest file

    def _split(self) -> tuple[FiledRule, ...]:
        try:
            return split_file(self.document)
        except RuleError as error:
            raise located(error, self.lines) from error


class CheckReply(msgspec.Struct, frozen=True):
    valid: bool
    rules: list[str] = []
    """Names of the rules in the file."""
    faults: list[Fault] = []


async def rule_file(request: Request) -> FileBody:
    """A dependency: the body's document, YAML or JSON by its Content-Type. Raises RuleError."""
    text = _text_of(await request.body())
    if "yaml" in request.headers.get("Content-Type", ""):
        return _storable(FileBody(*await asyncio.to_thread(parse_yaml, text)))
    try:
        document: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        wanted = "wanted JSON, or YAML with the Content-Type application/yaml"
        raise RuleError([Fault("file", f"found invalid JSON ({error}), {wanted}")]) from error
    return _storable(FileBody(document, {}))


def _text_of(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        message = f"found invalid UTF-8 at byte {error.start}, wanted text"
        raise RuleError([Fault("file", message)]) from error


def _storable(body: FileBody) -> FileBody:
    check_texts("body", body.document)
    return body


RuleFile = Annotated[FileBody, Depends(rule_file)]


@router.get("", dependencies=[require(KeyScope.READ)], openapi_extra=documented(answer=RuleList))
async def list_rules(
    services: CurrentServices, principal: CurrentPrincipal, project: str | None = None
) -> Response:
    """The built-in rules and people's own, for one project or for all, and which are in force."""
    if project is not None:
        principal.check_project(project)
    wanted = project if project is not None else principal.project
    records = await services.rules.list_all(wanted)
    builtin = (*_IN_CODE.values(), *services.rules.builtin)
    replaced = {record.name for record in records if wanted is not None or not record.project}
    own = {record.name for record in records if wanted is not None and record.project}
    views = [_builtin_view(one, in_force=one.rule.name not in replaced) for one in builtin]
    views += [_view(one, is_replaced=not one.project and one.name in own) for one in records]
    return json_response(RuleList(views))


@router.post(
    "",
    status_code=201,
    dependencies=[require(KeyScope.ADMIN)],
    openapi_extra=_EXPECTED | documented(answer=RuleList, status=201, refuses=[409]),
)
async def create_rules(
    services: CurrentServices,
    principal: CurrentPrincipal,
    body: RuleFile,
    project: Annotated[str | None, Query(min_length=1, max_length=256)] = None,
    enabled: bool = True,
) -> Response:
    """Add all rules of a file, to one project or to all. A rule with the name of a built-in one
    replaces it; with `enabled=false` it only removes it."""
    scope = _writable(principal.project, project)
    records = await services.rules.create(
        await body.split(), project=scope, enabled=enabled, actor=principal.actor
    )
    return json_response(RuleList([_view(record) for record in records]), 201)


@router.post(
    "/check",
    dependencies=[require(KeyScope.READ)],
    openapi_extra=_OF_ANY_KIND | documented(answer=CheckReply),
)
async def check_rules(request: Request) -> Response:
    """Check a rule file: every fault with its line and column. Changes nothing."""
    try:
        filed_rules = await (await rule_file(request)).split()
    except RuleError as error:
        return json_response(CheckReply(valid=False, faults=list(error.faults)))
    return json_response(CheckReply(True, [filed.rule.name for filed in filed_rules]))


@router.get(
    "/{rule_id}", dependencies=[require(KeyScope.READ)], openapi_extra=documented(answer=RuleView)
)
async def get_rule(
    rule_id: str, services: CurrentServices, principal: CurrentPrincipal
) -> Response:
    """A rule. For one that is not built in, the ETag is its version."""
    if rule_id.startswith(BUILTIN):
        filed = _builtin(services, rule_id.removeprefix(BUILTIN))
        records = await services.rules.list_all(principal.project or "")
        in_force = filed.rule.name not in {record.name for record in records}
        return json_response(_builtin_view(filed, in_force=in_force))
    record = await services.rules.get(rule_id)
    if record.project:
        principal.check_project(record.project)
    return _tagged(record)


@router.put(
    "/{rule_id}",
    dependencies=[require(KeyScope.ADMIN)],
    openapi_extra=_EXPECTED | documented(answer=RuleView, refuses=[409, 412, 428]),
)
async def replace_rule(
    rule_id: str,
    services: CurrentServices,
    principal: CurrentPrincipal,
    body: RuleFile,
    enabled: bool = True,
    if_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Replace a rule with a new version; If-Match names the version that it replaces."""
    record = await _own(services, rule_id)
    _writable(principal.project, record.project or None)
    after = await services.rules.replace(
        rule_id,
        await body.split(),
        version=_version(if_match),
        enabled=enabled,
        actor=principal.actor,
    )
    return _tagged(after)


@router.delete(
    "/{rule_id}",
    status_code=204,
    dependencies=[require(KeyScope.ADMIN)],
    openapi_extra=documented(refuses=[409, 412, 428]),
)
async def delete_rule(
    rule_id: str,
    services: CurrentServices,
    principal: CurrentPrincipal,
    if_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Delete a rule; If-Match names the version to delete."""
    record = await _own(services, rule_id)
    _writable(principal.project, record.project or None)
    await services.rules.delete(rule_id, version=_version(if_match), actor=principal.actor)
    return Response(status_code=204)


async def _own(services: Services, rule_id: str) -> RuleRecord:
    """A rule that a person wrote. Raises NotFoundError, ConflictError for a built-in one."""
    if rule_id.startswith(BUILTIN):
        name = _builtin(services, rule_id.removeprefix(BUILTIN)).rule.name
        refuse_protected(name)
        raise ConflictError(
            "builtin_rule",
            f"{name} is built in: POST a rule with its name to replace it, or with "
            "enabled=false to remove it.",
        )
    return await services.rules.get(rule_id)


def _writable(own_project: str | None, project: str | None) -> str:
    """The project to write to, as it is stored ("": every project). Raises ForbiddenError."""
    if own_project is not None and project != own_project:
        raise ForbiddenError(
            "foreign_project",
            f"The API key is bound to the project {own_project!r}: add project={own_project}.",
        )
    return project or ""


def _version(if_match: str | None) -> int:
    if if_match is None:
        raise VersionMissingError("if_match_missing", "Send If-Match with the rule's ETag.")
    digits = if_match.strip().strip('"')
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise UnprocessableError("invalid_if_match", f"If-Match: found {if_match!r}, no ETag")
    return int(digits)


def _tagged(record: RuleRecord) -> Response:
    response = json_response(_view(record))
    response.headers["ETag"] = f'"{record.version}"'
    return response


def _view(record: RuleRecord, *, is_replaced: bool = False) -> RuleView:
    return RuleView(
        id=record.id,
        name=record.name,
        source="user",
        project=record.project or None,
        version=record.version,
        enabled=record.enabled,
        in_force=record.enabled and not is_replaced,
        document=msgspec.json.decode(record.document, type=dict[str, object]),
        updated_at=rfc3339(record.updated_at),
        updated_by=record.updated_by,
    )


def _builtin(services: Services, name: str) -> FiledRule:
    return _IN_CODE.get(name) or services.rules.find_builtin(name)


def _builtin_view(filed: FiledRule, *, in_force: bool) -> RuleView:
    return RuleView(
        id=f"{BUILTIN}{filed.rule.name}",
        name=filed.rule.name,
        source="builtin",
        project=None,
        version=1,
        enabled=True,
        in_force=in_force,
        document=dict(filed.file),
    )
