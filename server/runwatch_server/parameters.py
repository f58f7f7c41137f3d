"""The checks on every path and query string: a name that the route does not know is refused, and
so is a text that no database of ours can hold.

A filter that is misspelt and ignored answers with everybody's alerts instead of one run's.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Annotated, Final

from fastapi import Path, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from runwatch.frames import MAX_ATTEMPT
from runwatch_server.errors import UnprocessableError
from runwatch_server.texts import check_texts

_ULID: Final = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"

NextToken = Annotated[str | None, Query(pattern=_ULID)]
"""Where a list goes on. One that is no token of ours would show its first page again, for ever."""

NextNumber = Annotated[int | None, Query(ge=0, lt=2**63, alias="next_token")]
"""Where a list of numbered things goes on."""

AttemptInPath = Annotated[int, Path(ge=0, le=MAX_ATTEMPT)]


async def storable_texts_only(request: Request) -> None:
    """App-wide dependency. Raises UnprocessableError for a zero byte in the path or the query."""
    for name, value in request.path_params.items():
        check_texts(f"path: {name}", value)
    for name, value in request.query_params.multi_items():
        check_texts("query", name)
        check_texts(f"query: {name}", value)


async def known_parameters_only(request: Request) -> None:
    """App-wide dependency. Raises UnprocessableError that names the parameter."""
    route = request.scope.get("route")
    if not request.query_params or not isinstance(route, APIRoute):
        return
    known = set(_names(route.dependant))
    for name in request.query_params:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            wanted = ", ".join(sorted(known)) or "none"
            raise UnprocessableError(
                "unknown_parameter", f"query: found {name!r}, wanted {wanted}{hint}"
            )


def _names(dependant: Dependant) -> Iterator[str]:
    for field in dependant.query_params:
        yield field.alias
    for inner in dependant.dependencies:
        yield from _names(inner)
