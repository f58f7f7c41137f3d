"""`/docs` and `/openapi.json`: the REST interface described, for people and for programs.

Open to everyone: it is the same for each installation, and tells nothing of this one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from fastapi import APIRouter, Request, Response

from runwatch_server.auth.guard import public
from runwatch_server.http import json_response
from runwatch_server.page.rendering import render

router: Final = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a body; its name ends in a question mark where it may be left out."""

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
    """Types of body."""
    fields: tuple[Field, ...]
    """Of a body in JSON."""


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
    """What an OpenAPI document describes, with its first tag."""
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
