"""Which methods an address takes, told where one was asked that it does not."""

from collections.abc import Sequence

from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import compile_path


def allowed_methods(app: FastAPI, path: str) -> Sequence[str]:
    """Of all routes at the path: the framework's own answer knows the first of them."""
    found = set[str]()
    for context in iter_route_contexts(app.routes):
        pattern, _, _ = compile_path(str(context.path))
        if isinstance(context.original_route, APIRoute) and pattern.match(path):
            found |= context.original_route.methods or set()
    return sorted(found)
