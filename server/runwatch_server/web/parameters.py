"""The checks on every path and query string.

Refused are a parameter that the route does not know, one that is given twice where one value is
wanted, and a text that a database cannot hold. If a misspelt filter were ignored, the answer would
hold everybody's alerts instead of one run's. A page shows which filters apply, and its address
comes with whatever a mail gateway or a chat has added to it (`utm_source`): there the unknown is
ignored.
"""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from fastapi import Path, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from runwatch.frames import MAX_ATTEMPT
from runwatch_server.errors import UnprocessableError
from runwatch_server.web.zero_bytes import check_texts

ULID: Final = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"

_PROBED: Final = frozenset(("/healthz", "/readyz", "/metrics"))
"""Asked by programs that supervise a process or scrape it. They may add what they like to an
address, such as a number that keeps a cache away, and would take a refusal for a failure."""

NextToken = Annotated[str | None, Query(pattern=ULID)]
"""Where a list continues. Any other text would give the first page again and again."""

JobId = Annotated[str | None, Query(pattern=ULID)]

NextNumber = Annotated[int | None, Query(ge=0, lt=2**63, alias="next_token")]
"""Where a list of numbered items continues."""

AttemptInPath = Annotated[int, Path(ge=0, le=MAX_ATTEMPT)]


async def storable_texts_only(request: Request) -> None:
    """App-wide dependency. Raises UnprocessableError for a zero byte in the path or the query."""
    for name, value in request.path_params.items():
        check_texts(f"path: {name}", value)
    for name, value in request.query_params.multi_items():
        check_texts("query", name)
        check_texts(f"query: {name}", value)


async def known_parameters_only(request: Request) -> None:
    """App-wide dependency. Raises UnprocessableError, which names the parameter."""
    route = request.scope.get("route")
    if not request.query_params or not isinstance(route, APIRoute) or route.path in _PROBED:
        return
    known = dict(_annotations(route.dependant))
    is_page = not route.include_in_schema
    for name in request.query_params:
        if name not in known:
            if is_page:
                continue
            raise _unknown(name, known)
        num_values = len(request.query_params.getlist(name))
        if num_values > 1 and not _is_list(known[name]):
            raise UnprocessableError(
                "repeated_parameter", f"query.{name}: found {num_values} values, wanted one"
            )


def check_span(
    first_step: int | None, last_step: int | None, *, place: str = "query", ends: str = "from, to"
) -> None:
    """Raises UnprocessableError for a span of steps that ends before it begins: an empty answer
    would look like that of a run which has not reached these steps."""
    if first_step is not None and last_step is not None and last_step < first_step:
        raise UnprocessableError(
            "invalid_request",
            f"{place}: found {ends} as {first_step}, {last_step}, wanted the earlier step first",
        )


def _unknown(name: str, known: Iterable[str]) -> UnprocessableError:
    close = get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    wanted = ", ".join(sorted(known)) or "none"
    return UnprocessableError("unknown_parameter", f"query: found {name!r}, wanted {wanted}{hint}")


def _annotations(dependant: Dependant) -> Iterator[tuple[str, Any]]:
    """Name and annotation of each query parameter of a route."""
    for field in dependant.query_params:
        yield field.alias, field.field_info.annotation
    for inner in dependant.dependencies:
        yield from _annotations(inner)


def _is_list(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType):
        return any(_is_list(one) for one in get_args(annotation))
    return get_origin(annotation) is list
