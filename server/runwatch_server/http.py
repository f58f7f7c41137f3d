"""Bodies in and out: msgspec structs, documented in OpenAPI."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from fastapi import Request, Response

from runwatch_server.errors import UnprocessableError

T = TypeVar("T")
_Json = dict[str, "_Json"] | list["_Json"] | str | float | None

_MAX_DEPTH: Final = 8
"""Of references within references: a type that holds itself is left as a reference there."""


def json_body(kind: type[T]) -> Callable[[Request], Awaitable[T]]:
    """A dependency that reads the request's JSON body as this type."""
    decoder = msgspec.json.Decoder(kind)

    async def read(request: Request) -> T:
        try:
            return decoder.decode(await request.body())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UnprocessableError("invalid_body", f"body: {error}") from error

    return read


def json_response(value: object, status: int = 200) -> Response:
    """A value of msgspec's types as a JSON response; floats in it are finite."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def documented(
    body: type | None = None, answer: object | None = None, status: int = 200
) -> dict[str, Any]:
    """`openapi_extra` of a route that takes this body and gives this answer."""
    extra: dict[str, Any] = {}
    if body is not None:
        extra["requestBody"] = {"required": True, "content": _content(body)}
    if answer is not None:
        extra["responses"] = {str(status): {"description": "OK", "content": _content(answer)}}
    return extra


def _content(kind: object) -> dict[str, Any]:
    (schema,), components = msgspec.json.schema_components(
        [kind], schema_hook=_schema_of_object, ref_template="#/x-{name}"
    )
    return {"application/json": {"schema": _inlined(schema, components)}}


def _schema_of_object(kind: type) -> dict[str, Any]:
    """Of `object`, whose values are as free as JSON lets them be."""
    if kind is not object:
        raise NotImplementedError(f"{kind} has no schema")
    return {"description": "any JSON value"}


def _inlined(schema: _Json, components: Mapping[str, _Json], depth: int = 0) -> _Json:
    """The schema with its references replaced, so that each route documents itself."""
    if isinstance(schema, list):
        return [_inlined(item, components, depth) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and depth < _MAX_DEPTH:
        return _inlined(components[reference.removeprefix("#/x-")], components, depth + 1)
    return {
        key: _inlined(value, components, depth) for key, value in schema.items() if key != "mapping"
    }
