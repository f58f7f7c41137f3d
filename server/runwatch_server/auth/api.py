"""`/keys`: API keys, managed by keys with the scope `admin`."""

from datetime import datetime
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Depends, Query, Response

from runwatch_server.auth.guard import CurrentPrincipal, require, require_key
from runwatch_server.auth.keys import ApiKey, KeyScope
from runwatch_server.clock import rfc3339, rfc3339_if_any
from runwatch_server.errors import ForbiddenError, UnprocessableError
from runwatch_server.services import CurrentServices
from runwatch_server.web.bodies import documented, json_body, json_response
from runwatch_server.web.pagination import answer_of

router: Final = APIRouter(prefix="/api/v1/keys", tags=["keys"])

NextKey = Annotated[str | None, Query(pattern=r"^[0-9]{1,12}(\.[0-9]{1,9})?-[a-z2-7]{8}$")]
"""Where the list of keys continues: when the last one was created, and its id."""


class KeyCreate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    """Who uses the key; shown beside everything that is done with it."""
    scopes: Annotated[frozenset[KeyScope], msgspec.Meta(min_length=1)]
    """What the key may be used for."""
    project: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None
    """The only project that the key may access; null: all projects."""
    expires_at: datetime | None = None
    """When the key expires; null: never, until it is revoked."""


class KeyView(msgspec.Struct, frozen=True):
    id: str
    name: str
    scopes: list[KeyScope]
    project: str | None
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class KeyCreated(KeyView, frozen=True):
    key: str
    """The key's text, which is shown only once."""


class KeyList(msgspec.Struct, frozen=True):
    keys: list[KeyView]
    next_token: str | None = None


@router.post(
    "",
    status_code=201,
    dependencies=[require_key(KeyScope.ADMIN)],
    openapi_extra=documented(KeyCreate, KeyCreated, 201),
)
async def create_key(
    services: CurrentServices,
    principal: CurrentPrincipal,
    wanted: Annotated[KeyCreate, Depends(json_body(KeyCreate))],
) -> Response:
    """Create a key. Its text is shown in this answer and never again. A login to the page is not
    enough for this, nor for revoking one: a key has to be sent."""
    if principal.project is not None and wanted.project != principal.project:
        raise ForbiddenError(
            "foreign_project", f"Your key is bound to the project {principal.project!r}."
        )
    if wanted.expires_at is not None and wanted.expires_at.tzinfo is None:
        raise UnprocessableError("invalid_body", "expires_at: wanted a time with a time zone")
    if wanted.expires_at is not None and wanted.expires_at.timestamp() <= services.clock.wall():
        raise UnprocessableError(
            "invalid_body",
            f"expires_at: found {wanted.expires_at.isoformat()}, wanted a time in the future",
        )
    new = await services.keys.create(
        wanted.name,
        scopes=wanted.scopes,
        project=wanted.project,
        expires_at=None if wanted.expires_at is None else wanted.expires_at.timestamp(),
        created_by=principal.actor,
    )
    created = KeyCreated(**msgspec.structs.asdict(_view(new.key)), key=new.text)
    return json_response(created, 201)


@router.get("", dependencies=[require(KeyScope.ADMIN)], openapi_extra=documented(answer=KeyList))
async def list_keys(
    services: CurrentServices,
    principal: CurrentPrincipal,
    next_token: NextKey = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> Response:
    """The keys that the caller may see, oldest first, without their secrets."""
    found = await services.keys.list_keys(
        project=principal.project,
        after=None if next_token is None else _place_in(next_token),
        limit=limit + 1,
    )
    return json_response(KeyList(*answer_of(found, limit, _token_of, _view)))


@router.delete("/{key_id}", status_code=204, dependencies=[require_key(KeyScope.ADMIN)])
async def revoke_key(
    key_id: str, services: CurrentServices, principal: CurrentPrincipal
) -> Response:
    """Revoke a key at once."""
    await services.keys.revoke(key_id, by=principal.actor, within=principal.project)
    return Response(status_code=204)


def _token_of(key: ApiKey) -> str:
    return f"{key.created_at!r}-{key.id}"


def _place_in(token: str) -> tuple[float, str]:
    created_at, _, key_id = token.partition("-")
    return float(created_at), key_id


def _view(key: ApiKey) -> KeyView:
    return KeyView(
        id=key.id,
        name=key.name,
        scopes=sorted(key.scopes),
        project=key.project,
        created_at=rfc3339(key.created_at),
        created_by=key.created_by,
        expires_at=rfc3339_if_any(key.expires_at),
        revoked_at=rfc3339_if_any(key.revoked_at),
        last_used_at=rfc3339_if_any(key.last_used_at),
    )
