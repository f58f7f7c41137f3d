"""Every route is closed unless it says what it needs."""

import re
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from tests.server.harness import Api

from runwatch_server.app import make_app
from runwatch_server.auth.guard import Proof, requirement_of
from runwatch_server.settings import Settings

pytestmark = pytest.mark.anyio

PUBLIC = {
    *("/healthz", "/readyz", "/docs", "/openapi.json", "/login", "/assets/{version}/{name:path}"),
}
"""A route is added here on purpose or not at all."""


def routes(app: FastAPI) -> list[tuple[str, APIRoute]]:
    found = [
        (str(context.path), context.original_route) for context in iter_route_contexts(app.routes)
    ]
    return [(path, route) for path, route in found if isinstance(route, APIRoute)]


def test_every_route_declares_what_it_needs(tmp_path: Path) -> None:
    found = routes(make_app(Settings(data_dir=tmp_path)))

    assert len(found) > 15
    for path, route in found:
        requirement = requirement_of(route)
        assert requirement is not None, path
        assert (requirement.scope is None) == (path in PUBLIC), path


OPENED_BY_A_BROWSER = {"/api/v1/stream", "/api/v1/fleet/stream", "/logout"}
"""By the cookie alone, beside pages. A route is added here on purpose or not at all."""


def test_the_cookie_alone_opens_pages_and_event_streams_only(tmp_path: Path) -> None:
    found = routes(make_app(Settings(data_dir=tmp_path)))
    opened = {
        path
        for path, route in found
        if (requirement := requirement_of(route)) is not None
        and requirement.scope is not None
        and requirement.proof is Proof.COOKIE
        and (route.include_in_schema or route.methods != {"GET"})
    }

    assert opened == OPENED_BY_A_BROWSER


async def test_every_route_but_the_public_ones_refuses_a_stranger(api: Api) -> None:
    for path, route in routes(api.app):
        if path not in PUBLIC:
            url = re.sub(r"\{[^}]*\}", "1", path)
            for method in route.methods or ():
                response = await api.http.request(method, url)
                assert response.status_code == 401, (method, path)


async def test_a_route_that_declares_nothing_is_closed(tmp_path: Path) -> None:
    app = make_app(Settings(data_dir=tmp_path))
    app.add_api_route("/forgotten", lambda: "open")
    transport = httpx.ASGITransport(app=app)

    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        response = await http.get("/forgotten")

    assert (response.status_code, response.json()["code"]) == (403, "undeclared_route")


async def test_a_request_addressed_to_a_foreign_host_is_refused(api: Api) -> None:
    response = await api.http.get("/healthz", headers={"Host": "evil.example"})

    assert response.status_code == 400
