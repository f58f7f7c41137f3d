"""`/audit`, for keys with the scope `admin`."""

from datetime import datetime
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Query, Response

from runwatch.vocabulary import RunId
from runwatch_server.audit.queries import AuditEntry, list_entries
from runwatch_server.auth.guard import CurrentPrincipal, require
from runwatch_server.auth.keys import KeyScope
from runwatch_server.clock import rfc3339
from runwatch_server.services import CurrentServices
from runwatch_server.web.bodies import documented, json_response
from runwatch_server.web.pagination import answer_of
from runwatch_server.web.parameters import NextNumber

router: Final = APIRouter(prefix="/api/v1", tags=["audit"])


class DeedView(msgspec.Struct, frozen=True):
    number: int
    at: datetime
    actor: str
    project: str | None
    """The project that it concerns; null: every project."""
    run_id: str | None
    deed: str
    subject: str
    detail: dict[str, object]
    """What was changed and how. Times are in RFC 3339."""
    digest: str | None = None
    """Digest of this entry and of the digest before it: a copy of the newest one proves all of them
    unchanged."""


class DeedList(msgspec.Struct, frozen=True):
    deeds: list[DeedView]
    next_token: str | None = None


@router.get(
    "/audit", dependencies=[require(KeyScope.ADMIN)], openapi_extra=documented(answer=DeedList)
)
async def list_audit(
    services: CurrentServices,
    principal: CurrentPrincipal,
    run_id: str | None = None,
    next_token: NextNumber = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """The audit log: what people and the policy did, newest first."""
    async with services.database.read() as connection:
        found = await list_entries(
            connection,
            project=principal.project,
            about_run=None if run_id is None else RunId(run_id),
            before=next_token,
            limit=limit + 1,
        )
    return json_response(DeedList(*answer_of(found, limit, lambda entry: entry.number, _view)))


def _view(entry: AuditEntry) -> DeedView:
    return DeedView(
        number=entry.number,
        at=rfc3339(entry.at),
        actor=entry.actor,
        project=entry.project or None,
        run_id=entry.about_run,
        deed=entry.deed,
        subject=entry.subject,
        detail=entry.readable_detail,
        digest=entry.digest,
    )
