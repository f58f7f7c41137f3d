"""`/docs` and `/openapi.json`: the description of the REST interface, for people and for programs.

Accessible without a key: it is the same for each installation, and reveals nothing about this one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from fastapi import APIRouter, Request, Response

from runwatch_server.auth.guard import public
from runwatch_server.page.rendering import render
from runwatch_server.web.bodies import json_response

router: Final = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a body; its name ends in a question mark if it may be left out."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path, as it is shown."""

    method: str
    path: str
    summary: str
    description: str
    parameters: tuple[str, ...]
    takes: tuple[str, ...]
    """Media types of the body."""
    fields: tuple[Field, ...]
    """Fields of a JSON body."""


@router.get("/openapi.json", dependencies=[public()])
async def get_openapi(request: Request) -> Response:
    return json_response(request.app.openapi())


@router.get("/docs", dependencies=[public()])
async def get_docs(request: Request) -> Response:
    by_tag: dict[str, list[Operation]] = {}
    for tag, operation in operations(request.app.openapi()):
        by_tag.setdefault(tag, []).append(operation)
    return render(request, "interface.html", by_tag=by_tag)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, Operation]]:
    """The operations that an OpenAPI document describes, each with its first tag."""
    for path, methods in document["paths"].items():
        for method, facts in methods.items():
            names = (_parameter(one) for one in facts.get("parameters", ()))
            body = cast("dict[str, Any]", facts.get("requestBody", {}))
            yield (
                facts.get("tags", ["other"])[0],
                Operation(
                    method=method.upper(),
                    path=path,
                    summary=facts.get("summary", ""),
                    description=facts.get("description", ""),
                    parameters=tuple(names),
                    takes=tuple(body.get("content", {})),
                    fields=tuple(_fields(body.get("content", {}).get("application/json", {}))),
                ),
            )


def _parameter(parameter: dict[str, Any]) -> str:
    return f"{parameter['name']}{'' if parameter.get('required') else '?'}"


def _fields(content: dict[str, Any]) -> Iterator[Field]:
    schema: dict[str, Any] = content.get("schema", {})
    required = schema.get("required", ())
    for name, facts in schema.get("properties", {}).items():
        yield Field(name if name in required else f"{name}?", facts.get("description", ""))
