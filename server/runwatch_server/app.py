"""The service as an ASGI application: its routes, middleware and lifespan."""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from fastapi import APIRouter, Depends, FastAPI
from starlette.routing import BaseRoute

import runwatch
from runwatch_server.alerts import api as alerts_api
from runwatch_server.alerts import stream_api
from runwatch_server.alerts.backtests import api as backtests_api
from runwatch_server.alerts.thresholds import api as thresholds_api
from runwatch_server.assembly import start_services
from runwatch_server.audit import api as audit_api
from runwatch_server.auth import api as auth_api
from runwatch_server.auth.guard import deny_by_default
from runwatch_server.auth.scrape_key import keep_scrape_key
from runwatch_server.auth.service import NewKey
from runwatch_server.clock import Clock
from runwatch_server.commands import api as commands_api
from runwatch_server.fleet import api as fleet_api
from runwatch_server.monitoring import api as monitoring_api
from runwatch_server.monitoring.service_metrics import ServiceMetrics
from runwatch_server.notify import api as notify_api
from runwatch_server.notify import receivers_api
from runwatch_server.openapi import DescribedApi
from runwatch_server.page.errors import add_error_pages
from runwatch_server.page.routers import ROUTERS as PAGE_ROUTERS
from runwatch_server.prometheus import api as prometheus_api
from runwatch_server.retention import api as retention_api
from runwatch_server.rules import api as rules_api
from runwatch_server.runs import api as runs_api
from runwatch_server.services import Services
from runwatch_server.settings import Settings
from runwatch_server.telemetry import api as telemetry_api
from runwatch_server.telemetry import histograms_api, history_api, series_api
from runwatch_server.web.content_coding import plain_bodies_only
from runwatch_server.web.head_requests import HeadAsGet
from runwatch_server.web.known_hosts import KnownHosts
from runwatch_server.web.parameters import known_parameters_only, storable_texts_only
from runwatch_server.web.problems import PlainAsProblem, add_problem_handlers
from runwatch_server.web.request_ids import RequestIdMiddleware
from runwatch_server.web.request_timer import RequestTimer
from runwatch_server.web.security_headers import SecurityHeaders

log = logging.getLogger(__name__)

DEFAULT_BODY_BYTES: Final = 2**20
"""Limit of a request's body; routes that take frames or layouts set their own."""


def make_app(
    settings: Settings,
    *,
    clock: Clock | None = None,
    on_first_key: Callable[[NewKey], None] | None = None,
    are_keys_lost: bool = False,
) -> FastAPI:
    """The service on one data directory. Its clock is the machine's, unless one is given, and on a
    shared database the database's.

    `on_first_key` is called at the first start with an admin key, which is shown only once; and
    with a new one if `are_keys_lost`.
    """
    metrics = ServiceMetrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            services = await start_services(stack, settings, clock, metrics)
            first = await services.keys.create_first(are_lost=are_keys_lost)
            if first is not None and on_first_key is not None:
                on_first_key(first)
            if settings.scrape_key_file is not None:
                await keep_scrape_key(services.keys, settings.scrape_key_file)
            app.state.services = services
            log.info("runwatch %s serves %s", runwatch.__version__, services.database.place)
            yield
            log.info("stopping: committing what is queued")

    app = DescribedApi(
        title="Runwatch",
        version=runwatch.__version__,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's page loads scripts from elsewhere, which could use our cookie
        redoc_url=None,
        openapi_url=None,
        # An address with a slash more is not found. The redirect would name http: behind a proxy
        # on another machine, and turns `/alerts/$ID` without an ID into the list of all.
        redirect_slashes=False,
        routes=_ROUTES,
        dependencies=_OF_EVERY_ROUTE,  # also of one that is added later
    )
    add_problem_handlers(app, on_problem=metrics.observe_problem)
    add_error_pages(app)
    app.add_middleware(PlainAsProblem, on_problem=metrics.observe_problem)
    app.add_middleware(KnownHosts, hosts=settings.trusted_hosts, on_problem=metrics.observe_problem)
    app.add_middleware(RequestIdMiddleware)
    app.add_middleware(RequestTimer, observe=metrics.observe_request)
    has_tls = settings.behind_proxy or settings.tls_cert is not None
    app.add_middleware(SecurityHeaders, has_tls=has_tls)
    app.add_middleware(HeadAsGet)
    return app


def release_waiting(app: FastAPI) -> None:
    """Ends long polls and event streams; to be called when the service is about to stop."""
    services = app.state.services
    assert isinstance(services, Services), "called once the app has started"
    services.release_waiting()


_OF_EVERY_ROUTE: Final = (
    Depends(deny_by_default),
    Depends(storable_texts_only),
    Depends(known_parameters_only),
    Depends(plain_bodies_only),
)


def _routes_of(*routers: APIRouter) -> list[BaseRoute]:
    everything = APIRouter(dependencies=_OF_EVERY_ROUTE)
    for router in routers:
        # Not a limit of the app itself: it would answer outside our middleware, in plain text.
        everything.include_router(router, max_body_size=DEFAULT_BODY_BYTES)
    return everything.routes


# Made once, not for each app: FastAPI works out what a route depends on when the first request
# looks for its route among them. For all of them that takes a tenth of a second.
_ROUTES: Final = _routes_of(
    auth_api.router,
    monitoring_api.router,
    runs_api.router,
    fleet_api.router,
    telemetry_api.router,
    series_api.router,
    history_api.router,
    histograms_api.router,
    backtests_api.router,
    rules_api.router,
    retention_api.router,
    alerts_api.router,
    stream_api.router,
    thresholds_api.router,
    commands_api.router,
    audit_api.router,
    notify_api.router,
    receivers_api.router,
    prometheus_api.router,
    *PAGE_ROUTERS,
)
