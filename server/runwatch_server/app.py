"""The service put together: `make_app` is the one place where the parts meet."""

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from fastapi import Depends, FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import runwatch
from runwatch.errors import RunwatchError
from runwatch_server import metrics
from runwatch_server.alerts import api as alerts_api
from runwatch_server.alerts import backtest_api, stream_api, thresholds_api
from runwatch_server.alerts.assembly import Alerting, Judges, start_alerting
from runwatch_server.alerts.collector import AlertingCollector
from runwatch_server.audit import api as audit_api
from runwatch_server.auth import api as auth_api
from runwatch_server.auth.guard import deny_by_default
from runwatch_server.auth.rate_limits import RateLimits
from runwatch_server.auth.scrape_key import check_scrape_key_file, keep_scrape_key
from runwatch_server.auth.service import Keys, NewKey
from runwatch_server.auth.sessions import Sessions
from runwatch_server.clock import Clock
from runwatch_server.commands import api as commands_api
from runwatch_server.commands.signing import Signer
from runwatch_server.db import Database, make_store
from runwatch_server.disk import DiskGuard
from runwatch_server.event_streams import EventStreams
from runwatch_server.fleet import api as fleet_api
from runwatch_server.fleet.pulse import Pulses
from runwatch_server.health import Health
from runwatch_server.interface import DescribedApi
from runwatch_server.maintenance import Maintenance
from runwatch_server.notify import api as notify_api
from runwatch_server.notify import receivers_api
from runwatch_server.notify.assembly import start_notifying
from runwatch_server.notify.collector import NotifyCollector
from runwatch_server.notify.outbox import Outbox
from runwatch_server.notify.receivers import Receivers, load_receivers
from runwatch_server.objects import ObjectStore, make_objects
from runwatch_server.page.demo_run import PageRun
from runwatch_server.page.errors import add_error_pages
from runwatch_server.page.routers import ROUTERS as PAGE_ROUTERS
from runwatch_server.parameters import known_parameters_only, storable_texts_only
from runwatch_server.problems import PlainAsProblem, add_problem_handlers
from runwatch_server.prometheus import api as prometheus_api
from runwatch_server.replicas.assembly import Replica, join
from runwatch_server.request_timer import RequestTimer
from runwatch_server.retention import api as retention_api
from runwatch_server.retention.ages import Ages
from runwatch_server.retention.service import Retention
from runwatch_server.rules import api as rules_api
from runwatch_server.runs import api as runs_api
from runwatch_server.runs.liveness import Liveness
from runwatch_server.runs.service import Runs
from runwatch_server.runs.watcher import RunWatcher
from runwatch_server.schema import upgrade_schema
from runwatch_server.security_headers import SecurityHeaders
from runwatch_server.services import Services
from runwatch_server.settings import Settings
from runwatch_server.signing import open_key_ring
from runwatch_server.telemetry import api as telemetry_api
from runwatch_server.telemetry import histograms_api, history_api, series_api
from runwatch_server.telemetry.events import EventLog
from runwatch_server.telemetry.gap_log import GapLog
from runwatch_server.telemetry.ingest import Ingest
from runwatch_server.telemetry.layout_store import Layouts
from runwatch_server.telemetry.packs.packing import Packer
from runwatch_server.telemetry.packs.reading import PackReader
from runwatch_server.telemetry.reading import Reader
from runwatch_server.telemetry.roller import Roller

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
    health = Health()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            services = await _start_or_say_why(stack, settings, clock, health)
            first = await services.keys.create_first()
            if first is not None and on_first_key is not None:
                on_first_key(first)
            if settings.scrape_key_file is not None:
                await keep_scrape_key(services.keys, settings.scrape_key_file)
            app.state.services = services
            log.info("runwatch %s serves %s", runwatch.__version__, services.database.place)
            yield
            log.info("stopping: what is queued is committed")

    app = DescribedApi(
        title="Runwatch",
        version=runwatch.__version__,
        lifespan=lifespan,
        docs_url=None,  # it would load scripts from elsewhere, beside the page's own cookie
        redoc_url=None,
        openapi_url=None,
        dependencies=[
            Depends(deny_by_default),
            Depends(storable_texts_only),
            Depends(known_parameters_only),
        ],
    )
    add_problem_handlers(app, on_problem=health.observe_problem)
    add_error_pages(app)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(settings.trusted_hosts))
    app.add_middleware(PlainAsProblem, on_problem=health.observe_problem)
    app.add_middleware(RequestIdMiddleware)
    app.add_middleware(RequestTimer, observe=health.observe_request)
    has_tls = settings.behind_proxy or settings.tls_cert is not None
    app.add_middleware(SecurityHeaders, has_tls=has_tls)
    for router in _ROUTERS:
        # Not on the app: it would answer outside our middleware, and in plain text.
        app.include_router(router, max_body_size=DEFAULT_BODY_BYTES)
    return app


def release_waiting(app: FastAPI) -> None:
    """To be called when the service is about to stop: long polls and event streams end."""
    services = app.state.services
    assert isinstance(services, Services), "called once the app has started"
    services.release_waiting()


_ROUTERS: Final = (
    auth_api.router,
    metrics.router,
    runs_api.router,
    fleet_api.router,
    telemetry_api.router,
    series_api.router,
    history_api.router,
    histograms_api.router,
    backtest_api.router,
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


async def _start_or_say_why(
    stack: AsyncExitStack, settings: Settings, clock: Clock, health: Health
) -> Services:
    try:
        return await _start(stack, settings, clock, health)
    except RunwatchError as error:
        log.error("the service does not start: %s", error)
        raise
    except Exception:
        log.exception("the service does not start")
        raise


async def _start(
    stack: AsyncExitStack, settings: Settings, clock: Clock, health: Health
) -> Services:
    """Opens and starts everything; the stack closes it in the opposite order."""
    if settings.scrape_key_file is not None:
        check_scrape_key_file(settings.scrape_key_file)
    receivers = load_receivers(settings.data_dir, settings.receivers)
    if not receivers.url:
        receivers = replace(receivers, url=settings.external_url.rstrip("/"))
    database = await stack.enter_async_context(
        Database(
            make_store(settings.data_dir, settings.database_url),
            queue_works=settings.queue_works,
            observer=health,
        )
    )
    signer = Signer(open_key_ring(settings, is_shared=database.is_shared))
    health.watch_queue(lambda: database.num_waiting)
    health.watch_disk(settings.data_dir)
    await database.migrate(upgrade_schema)
    database.start()
    liveness, events = Liveness(), EventLog(clock)
    replica = join(stack, database, clock, liveness)
    outbox = Outbox(receivers.receivers, clock)
    objects = make_objects(settings.objects_url)
    gap_log = GapLog(database, clock, events, health)
    await run_in_background(stack, gap_log.run(), "gap log")
    packs = PackReader(objects, clock.monotonic, gap_log)
    alerting = await start_alerting(
        stack,
        settings,
        clock,
        database,
        liveness,
        events,
        tell=outbox.tell,
        page=outbox.page,
        signer=signer,
        packs=packs,
        ownership=replica.ownership,
        bulletin=replica.bulletin,
    )
    health.registry.register(AlertingCollector(alerting))
    services = _build(
        settings,
        clock,
        health,
        database,
        liveness,
        events,
        alerting,
        receivers,
        replica,
        packs,
        objects,
        signer,
    )
    await services.runs.listen()
    stack.push_async_callback(services.keys.save_uses)
    stack.push_async_callback(services.demo_run.stop)
    watcher = RunWatcher(
        database,
        clock,
        services.liveness,
        stall_s=settings.stall_s,
        ownership=replica.ownership,
        lost_s=settings.lost_s,
    )
    maintenance = Maintenance(
        settings,
        clock,
        database,
        roller=services.roller,
        packer=services.packer,
        retention=services.retention,
        save_uses=services.keys.save_uses,
        replica=replica,
    )
    notifying = await start_notifying(
        stack,
        receivers,
        database=database,
        clock=clock,
        board=alerting.board,
        detective=alerting.detective,
    )
    health.registry.register(NotifyCollector(notifying))
    if replica.leases is not None:
        replica.leases.serve(Judges(alerting.evaluators, alerting.ticker))
    for name, loop in (*replica.loops(), *notifying.loops()):
        await run_in_background(stack, loop, name)
    await run_in_background(stack, watcher.run(), "run watcher")
    await run_in_background(stack, alerting.ticker.run(), "ticker")
    await run_in_background(stack, maintenance.run(), "maintenance")
    return services


def _build(
    settings: Settings,
    clock: Clock,
    health: Health,
    database: Database,
    liveness: Liveness,
    events: EventLog,
    alerting: Alerting,
    receivers: Receivers,
    replica: Replica,
    packs: PackReader,
    objects: ObjectStore | None,
    signer: Signer,
) -> Services:
    layouts = Layouts(database, clock)
    disk = DiskGuard(
        settings.data_dir,
        reserve_bytes=0 if database.is_shared else settings.disk_reserve_mib << 20,
        monotonic=clock.monotonic,
    )
    health.watch_disk_guard(disk)
    reader = Reader(database, layouts, packs)
    packer = None
    if objects is not None:
        after_s = settings.pack_after_h * 3600
        packer = Packer(database, objects, clock, after_s=after_s, observer=health)
    keys = Keys(database, clock)
    runs = Runs(database, clock, liveness)
    return Services(
        settings=settings,
        clock=clock,
        database=database,
        health=health,
        keys=keys,
        rate_limits=RateLimits(
            requests_per_s=settings.requests_per_s,
            ingest_per_s=settings.ingest_per_s,
            refused_per_s=settings.refused_per_s,
            monotonic=clock.monotonic,
        ),
        sessions=Sessions(database, clock, keys),
        liveness=liveness,
        runs=runs,
        signer=signer,
        events=events,
        layouts=layouts,
        ingest=Ingest(
            database,
            clock,
            layouts=layouts,
            events=events,
            liveness=liveness,
            committed=alerting.evaluators.committed,
            check_disk=disk.check,
            observer=health,
        ),
        reader=reader,
        packs=packs,
        packer=packer,
        roller=Roller(database, layouts, packs),
        retention=Retention(database, clock, _ages(settings)),
        pulses=Pulses(database, reader, clock),
        command_source=alerting.commands,
        rules=alerting.rules,
        commands=alerting.commands,
        alerts=alerting.alerts,
        evaluators=alerting.evaluators,
        ticker=alerting.ticker,
        board=alerting.board,
        event_streams=EventStreams(
            keys,
            alerting.board,
            of_key=settings.streams_per_key,
            in_all=settings.streams,
        ),
        receivers=receivers,
        disk=disk,
        demo_run=PageRun(settings.own_url, clock, keys, runs),
        replica=replica,
    )


def _ages(settings: Settings) -> Ages:
    return Ages(settings.raw_days, settings.evidence_days, settings.rollup_days)


async def run_in_background(
    stack: AsyncExitStack, work: Coroutine[Any, Any, None], name: str
) -> None:
    """Runs a loop until the stack closes; one that fails says so in the log."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_failure)

    async def stop() -> None:
        task.cancel()
        await asyncio.wait([task])

    stack.push_async_callback(stop)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s has died", task.get_name(), exc_info=error)


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
