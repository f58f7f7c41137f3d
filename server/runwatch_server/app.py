"""The service put together: `make_app` is the one place where the parts meet."""

import logging
import re
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import alembic.command
import alembic.config
import sqlalchemy as sa
from fastapi import Depends, FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import runwatch
from runwatch_server.auth import api as auth_api
from runwatch_server.auth.guard import deny_by_default
from runwatch_server.auth.service import Keys, NewKey
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.problems import add_problem_handlers
from runwatch_server.services import Services
from runwatch_server.settings import Settings

log = logging.getLogger(__name__)

DEFAULT_BODY_BYTES: Final = 2**20
"""Limit of a request's body; routes that take frames or layouts say their own."""

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def make_app(
    settings: Settings,
    *,
    clock: Clock | None = None,
    on_first_key: Callable[[NewKey], None] | None = None,
) -> FastAPI:
    """The service over one data directory.

    `on_first_key` is called at the first start with the one-time admin key.
    """
    clock = clock or Clock()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            services = await _start(stack, settings, clock)
            first = await services.keys.create_first()
            if first is not None and on_first_key is not None:
                on_first_key(first)
            app.state.services = services
            log.info("runwatch %s serves %s", runwatch.__version__, settings.data_dir)
            yield
            log.info("stopping: what is queued is committed")

    app = FastAPI(
        title="Runwatch",
        version=runwatch.__version__,
        lifespan=lifespan,
        dependencies=[Depends(deny_by_default)],
        max_body_size=DEFAULT_BODY_BYTES,
    )
    add_problem_handlers(app)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(settings.trusted_hosts))
    app.add_middleware(RequestIdMiddleware)
    app.include_router(auth_api.router)
    return app


async def _start(stack: AsyncExitStack, settings: Settings, clock: Clock) -> Services:
    """Opens and starts everything; the stack closes it in the opposite order."""
    database = await stack.enter_async_context(
        Database(settings.data_dir, queue_works=settings.queue_works)
    )
    await database.migrate(upgrade_schema)
    database.start()
    keys = Keys(database, clock)
    stack.push_async_callback(keys.save_uses)
    return Services(settings=settings, clock=clock, database=database, keys=keys)


def upgrade_schema(connection: sa.Connection) -> None:
    """Brings the database to the newest version of its tables."""
    config = alembic.config.Config()
    config.set_main_option("script_location", "runwatch_migrations:")
    config.attributes["connection"] = connection
    alembic.command.upgrade(config, "head")


class RequestIdMiddleware:
    """Gives every answer the request's id, the client's own where it sent one that is usable."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("X-Request-Id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)
