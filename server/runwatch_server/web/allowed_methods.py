"""Which methods a path supports, for the answer to a request with another one."""

from collections.abc import Sequence

from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import compile_path


def allowed_methods(app: FastAPI, path: str) -> Sequence[str]:
    """Those of all routes at the path; the framework's own answer names only the first route's."""
    found = set[str]()
    for context in iter_route_contexts(app.routes):
        pattern, _, _ = compile_path(str(context.path))
        if isinstance(context.original_route, APIRoute) and pattern.match(path):
            found |= context.original_route.methods or set()
    return sorted(found)
