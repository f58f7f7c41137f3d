"""The OpenAPI document: FastAPI's description of each route, with the scopes, the refusals and the
field descriptions that FastAPI does not know."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts

from runwatch_server.auth.guard import Requirement, requirement_of
from runwatch_server.errors import REFUSALS, ServiceError
from runwatch_server.web.bodies import refusal_name, schema_of
from runwatch_server.web.field_docs import field_texts
from runwatch_server.web.problems import MEDIA_TYPE, RuleProblem

_SCHEME: Final = "key"
_JSON: Final = "application/json"
_OURS: Final = ("runwatch.", "runwatch_server.")
_NOT_OURS: Final = "runwatch_server.cli."
"""The command line reads answers into structs of its own, some with the same names."""
_OF_GUARD: Final = (401, 403, 429, 503)
"""Statuses of every route that needs a key; 503 because the check itself needs the database."""
_HEADERS: Final[dict[int, dict[str, Any]]] = {
    401: {"WWW-Authenticate": {"schema": {"type": "string"}}},
    429: {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}}},
    503: {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}}},
}


class DescribedApi(FastAPI):
    """A FastAPI whose OpenAPI document also describes keys, refusals and fields."""

    _described: dict[str, Any] | None = None

    def openapi(self) -> dict[str, Any]:
        if self._described is None:
            self._described = self._describe(super().openapi())
        return self._described

    def _describe(self, document: dict[str, Any]) -> dict[str, Any]:
        document["components"] = _components(document["components"]["schemas"])
        for path, method, requirement in self._operations():
            operation = document["paths"].get(path, {}).get(method)
            if operation is not None:
                _describe_refusals(operation, path, requirement)
        _describe_fields(document, _texts_by_name())
        return document

    def _operations(self) -> Iterator[tuple[str, str, Requirement]]:
        for context in iter_route_contexts(self.routes):
            route = context.original_route
            requirement = requirement_of(route) if isinstance(route, APIRoute) else None
            if isinstance(route, APIRoute) and requirement is not None:
                for method in route.methods or ():
                    yield str(context.path), method.lower(), requirement


def _texts_by_name() -> dict[str, list[Mapping[str, str]]]:
    """Field texts of our structs, by the struct's name in a schema, which two structs may share.

    Read when the document is first requested, since it takes a while.
    """
    found: dict[str, list[Mapping[str, str]]] = {}
    waiting: list[type] = [msgspec.Struct]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        is_ours = kind.__module__.startswith(_OURS) and not kind.__module__.startswith(_NOT_OURS)
        if is_ours and (texts := field_texts(kind)):
            found.setdefault(kind.__name__, []).append(texts)
    return found


def _describe_fields(schema: object, texts: Mapping[str, Sequence[Mapping[str, str]]]) -> None:
    """Adds the texts below the fields in the code to the schema, for readers of the document."""
    if isinstance(schema, list):
        for item in cast("list[object]", schema):
            _describe_fields(item, texts)
    if not isinstance(schema, dict):
        return
    parts = cast("dict[str, object]", schema)
    for part in parts.values():
        _describe_fields(part, texts)
    title, fields = parts.get("title"), parts.get("properties")
    if isinstance(title, str) and isinstance(fields, dict):
        known = cast("dict[str, dict[str, object]]", fields)
        fitting = [one for one in texts.get(title, ()) if one.keys() <= known.keys()]
        for name, text in [pair for one in fitting[:1] for pair in one.items()]:
            known[name]["description"] = text


def _describe_refusals(operation: dict[str, Any], path: str, requirement: Requirement) -> None:
    responses = cast("dict[str, Any]", operation["responses"])
    responses.pop("422", None)  # FastAPI's own, with a body that we never send
    for response in responses.values():
        if response.get("content", {}).get(_JSON) == {"schema": {}}:
            del response["content"][_JSON]  # FastAPI's guess for a route that declares nothing
    for status in _statuses(operation, path, requirement):
        responses[str(status)] = {"$ref": f"#/components/responses/{refusal_name(status)}"}
    operation["responses"] = dict(sorted(responses.items()))
    if requirement.scope is not None:
        operation["security"] = [{_SCHEME: [requirement.scope.value]}]


def _statuses(operation: dict[str, Any], path: str, requirement: Requirement) -> Iterator[int]:
    """The refusals common to routes of this kind; a route's own are in `documented`."""
    yield 422  # also for a route without parameters: an unknown one is refused
    if requirement.scope is not None:
        yield from _OF_GUARD
    if "{" in path:
        yield 404
    if "requestBody" in operation:
        yield 413
        yield 415


def _components(schemas: dict[str, Any]) -> dict[str, Any]:
    ours = {name: schema for name, schema in schemas.items() if "Validation" not in name}
    return {
        "schemas": dict(sorted({**ours, "Problem": schema_of(RuleProblem)}.items())),
        "responses": {refusal_name(kind.status): _refusal(kind) for kind in REFUSALS},
        "securitySchemes": {
            _SCHEME: {
                "type": "http",
                "scheme": "bearer",
                "description": "An API key; a route lists the scope that the key must have.",
            }
        },
    }


def _refusal(kind: type[ServiceError]) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": kind.title,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    if headers := _HEADERS.get(kind.status):
        response["headers"] = headers
    return response
