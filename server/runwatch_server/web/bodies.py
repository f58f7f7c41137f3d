"""JSON bodies of requests and answers as msgspec structs, and their description in OpenAPI."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from inspect import cleandoc
from typing import Any, Final, TypeVar

import msgspec
from fastapi import Request, Response

from runwatch_server.errors import UnprocessableError
from runwatch_server.web.body_faults import Json, found_in, wanted_by
from runwatch_server.web.zero_bytes import check_json_texts

T = TypeVar("T")

_NAMED_ANEW: Final = {413: "Content Too Large", 422: "Unprocessable Content"}
_MAX_DEPTH: Final = 8
"""Levels of references that are written out; a type that contains itself ends in a reference."""


def json_body(kind: type[T]) -> Callable[[Request], Awaitable[T]]:
    """A dependency that reads the request's JSON body as this type. Where none of its fields has to
    be given, the body need not be either."""
    decoder = msgspec.json.Decoder(kind)
    schema = schema_of(kind)
    without_any = None if _needs_body(kind) else b"{}"

    async def read(request: Request) -> T:
        body = await request.body() or without_any
        if not body:
            raise UnprocessableError("invalid_body", "body: found nothing, wanted JSON")
        check_json_texts("body", body)
        try:
            return decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            told = str(error)
            said = f"body: {told}{found_in(body, told)}{wanted_by(schema, told)}"
            raise UnprocessableError("invalid_body", said) from error

    return read


def json_response(value: object, status: int = 200) -> Response:
    """A value of msgspec's types as a JSON response; floats in it are finite."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def documented(
    body: type | None = None,
    answer: object | None = None,
    status: int = 200,
    *,
    also: int | None = None,
    texts: Collection[str] = (),
    refuses: Collection[int] = (),
) -> dict[str, Any]:
    """`openapi_extra` of a route that takes this body and gives this answer.

    `also` is a second status of the same answer, `texts` are its media types other than JSON;
    `refuses` are the statuses with which this route refuses (`openapi.py` adds the common ones).
    """
    responses: dict[str, Any] = {}
    extra: dict[str, Any] = {"responses": responses}
    if body is not None:
        extra["requestBody"] = {"required": _needs_body(body), "content": _content(body)}
    content: dict[str, Any] = {} if answer is None else _content(answer)
    content |= {media_type: {"schema": {"type": "string"}} for media_type in texts}
    if content:
        told = {"description": "OK", "content": content}
        responses |= {str(one): told for one in (status, also) if one is not None}
    for refused in refuses:
        reference = f"#/components/responses/{refusal_name(refused)}"
        responses[str(refused)] = {"$ref": reference}
    return extra


def refusal_name(status: int) -> str:
    """The name of the answer with this status among the OpenAPI document's components."""
    return phrase_of(status).replace(" ", "")


def phrase_of(status: int) -> str:
    """The reason phrase of a status in RFC 9110.

    Python knows two of its new names only since 3.13, and answers must not depend on the version.
    """
    return _NAMED_ANEW.get(status) or HTTPStatus(status).phrase


def schema_of(kind: object) -> Json:
    """The JSON schema of a msgspec type, without references to others."""
    (schema,), components = msgspec.json.schema_components(
        [kind], schema_hook=_schema_of_object, ref_template="#/x-{name}"
    )
    return _inlined(schema, components)


def _needs_body(kind: type) -> bool:
    """Whether a request has to say anything: whether a field of this type has no default."""
    return not issubclass(kind, msgspec.Struct) or any(
        one.required for one in msgspec.structs.fields(kind)
    )


def _content(kind: object) -> dict[str, Any]:
    return {"application/json": {"schema": schema_of(kind)}}


def _schema_of_object(kind: type) -> dict[str, Any]:
    """The schema of `object`: any JSON value."""
    if kind is not object:
        raise NotImplementedError(f"{kind} has no schema")
    return {"description": "any JSON value"}


def _inlined(schema: Json, components: Mapping[str, Json], depth: int = 0) -> Json:
    """The schema with its references written out, so that each route documents itself."""
    if isinstance(schema, list):
        return [_inlined(item, components, depth) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and depth < _MAX_DEPTH:
        return _inlined(components[reference.removeprefix("#/x-")], components, depth + 1)
    found = {
        key: _inlined(value, components, depth)
        for key, value in schema.items()
        # msgspec asks for unique items, yet accepts repeated ones and keeps one.
        if key not in ("mapping", "uniqueItems")
    }
    if isinstance(text := found.get("description"), str):
        found["description"] = cleandoc(text)  # a docstring, with the indentation of its source
    places = found.get("prefixItems")
    if isinstance(places, list) and all(place == places[0] for place in places):
        # A tuple of one type becomes a list of fixed length, which every schema reader knows.
        found["items"] = places[0]
        del found["prefixItems"]
    return found
