"""docs/reference/rest.md: every path of the interface, and the scope that it wants."""

from collections.abc import Iterator

from fastapi.routing import APIRoute, iter_route_contexts
from tests.house.reference.docstrings import one_line, table

from runwatch_server.app import make_app
from runwatch_server.auth.guard import requirement_of
from runwatch_server.settings import Settings

HEAD = """# REST interface

Made from the code by `make docs`. `/docs` of a service describes parameters, bodies and answers, as
does [openapi.json](../openapi.json). A key goes along as `Authorization: Bearer runwatch_...`;
errors are problems of RFC 9457 with a stable `code`; `next_token` asks for the next page of a list.

{paths}
"""


def rendered() -> str:
    rows = [[f"`{method} {path}`", scope, text] for method, path, scope, text in routes()]
    return HEAD.format(paths=table(["request", "scope", "what it does"], rows))


def routes() -> Iterator[tuple[str, str, str, str]]:
    """Method, path, scope and the first sentence of what is said of it; not those of the page."""
    found = [
        (str(context.path), context.original_route)
        for context in iter_route_contexts(make_app(Settings()).routes)
    ]
    for path, route in sorted(found, key=lambda one: one[0]):
        if isinstance(route, APIRoute) and route.include_in_schema:
            requirement = requirement_of(route)
            scope = "" if requirement is None or requirement.scope is None else requirement.scope
            text = one_line(route.description.split("\n\n")[0]) or route.summary or route.name
            for method in sorted(route.methods or ()):
                yield method, path, str(scope), text.replace("_", " ") if " " not in text else text
