"""Builds the parts of the service, connects them and starts them in the order they need."""

import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial

from runwatch.errors import RunwatchError
from runwatch_server.alerts.assembly import Alerting, EvaluationOwner, start_alerting
from runwatch_server.alerts.backtests.runner import Backtests
from runwatch_server.alerts.collector import AlertingCollector
from runwatch_server.alerts.evaluation.progress_queries import note_passed_over
from runwatch_server.alerts.run_removal import RunRemovalNotice
from runwatch_server.auth.rate_limits import RateLimits
from runwatch_server.auth.scrape_key import check_scrape_key_file
from runwatch_server.auth.service import Keys
from runwatch_server.auth.sessions import Sessions
from runwatch_server.background import Loop, keep_running
from runwatch_server.clock import Clock
from runwatch_server.commands.signing import Signer
from runwatch_server.db import Database, make_store
from runwatch_server.disk import DiskGuard
from runwatch_server.event_streams import EventStreams
from runwatch_server.fleet.pulse import Pulses
from runwatch_server.foundation import Foundation
from runwatch_server.maintenance import Maintenance
from runwatch_server.monitoring.restoring import restore
from runwatch_server.monitoring.service_metrics import ServiceMetrics
from runwatch_server.notify.assembly import Notifying, start_notifying
from runwatch_server.notify.collector import NotifyCollector
from runwatch_server.notify.outbox import Outbox
from runwatch_server.notify.receivers import Receivers, load_receivers
from runwatch_server.objects import ObjectStore, make_objects
from runwatch_server.page.demo_run import PageRun
from runwatch_server.replicas.assembly import Replica, join
from runwatch_server.replicas.broadcasts import Topic
from runwatch_server.replicas.shared_clock import SharedClock
from runwatch_server.retention.ages import Ages
from runwatch_server.retention.service import Retention
from runwatch_server.runs.liveness import Liveness
from runwatch_server.runs.lost_runs import LostRuns
from runwatch_server.runs.pause_watch import PauseWatch
from runwatch_server.runs.removals import Removals
from runwatch_server.runs.service import Runs
from runwatch_server.runs.watcher import RunWatcher
from runwatch_server.schema import upgrade_beside, upgrade_schema
from runwatch_server.services import Services
from runwatch_server.settings import Settings
from runwatch_server.signing import SECRET_FILE, open_key_ring
from runwatch_server.telemetry.events import EventLog
from runwatch_server.telemetry.frame_budget import FrameBudget
from runwatch_server.telemetry.gap_log import GapLog
from runwatch_server.telemetry.ingest import Ingest
from runwatch_server.telemetry.layout_store import Layouts
from runwatch_server.telemetry.packs.packing import Packer
from runwatch_server.telemetry.packs.reading import PackReader
from runwatch_server.telemetry.quota import ProjectQuota
from runwatch_server.telemetry.reading import Reader
from runwatch_server.telemetry.roller import Roller

log = logging.getLogger(__name__)


async def start_services(
    stack: AsyncExitStack, settings: Settings, clock: Clock | None, metrics: ServiceMetrics
) -> Services:
    """Opens and starts everything; the stack closes it in reverse order.

    Logs any error and raises it again.
    """
    try:
        return await _start(stack, settings, clock, metrics)
    except RunwatchError as error:
        log.error("the service does not start: %s", error)
        raise
    except Exception:
        log.exception("the service does not start")
        raise


async def _start(
    stack: AsyncExitStack, settings: Settings, clock: Clock | None, metrics: ServiceMetrics
) -> Services:
    foundation = await _open_foundation(stack, settings, clock, metrics)
    # Before evaluation begins, which would compete with it: nothing is answered until it is done.
    now = foundation.clock.wall()
    await restore(metrics.runs, foundation.database, foundation.layouts, now=now)
    alerting = await _start_alerting(stack, foundation)
    notifying = await start_notifying(
        stack,
        foundation.receivers,
        database=foundation.database,
        clock=foundation.clock,
        announcer=alerting.announcer,
        sign_finder=alerting.sign_finder,
    )
    services = _build(foundation, alerting, notifying)
    await services.runs.listen()
    stack.push_async_callback(services.keys.save_uses)
    stack.push_async_callback(services.demo_run.stop)
    metrics.registry.register(NotifyCollector(notifying))
    for loop in _loops(services, alerting, notifying):
        keep_running(stack, loop, metrics)
    return services


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened(Foundation):
    """The foundation, with what only this module uses."""

    metrics: ServiceMetrics
    receivers: Receivers
    replica: Replica
    objects: ObjectStore | None


async def _open_foundation(
    stack: AsyncExitStack, settings: Settings, clock: Clock | None, metrics: ServiceMetrics
) -> _Opened:
    if settings.scrape_key_file is not None:
        check_scrape_key_file(settings.scrape_key_file)
    receivers = load_receivers(settings.data_dir, settings.receivers)
    if not receivers.url:
        receivers = replace(receivers, url=settings.external_url.rstrip("/"))
    database = await stack.enter_async_context(
        Database(
            make_store(settings.data_dir, settings.database_url),
            queue_works=settings.queue_works,
            observer=metrics,
        )
    )
    metrics.watch_queue(lambda: database.num_waiting)
    metrics.watch_disk(settings.data_dir)
    secret = None if database.is_shared else settings.data_dir / SECRET_FILE
    await database.migrate(upgrade_schema if secret is None else upgrade_beside(secret))
    signer = Signer(open_key_ring(settings, is_shared=database.is_shared))  # tables come first
    database.start()
    clock = clock or await _own_clock(stack, database, metrics)
    liveness, events = Liveness(), EventLog(clock)
    replica = join(stack, database, clock, liveness)
    removals = Removals(lambda run_id: replica.broadcasts.send(Topic.REMOVED, run_id))
    replica.broadcasts.on(Topic.REMOVED, removals.on_removed)
    objects = make_objects(settings.objects_url)
    gap_log = GapLog(database, clock, events, metrics)
    keep_running(stack, Loop("gap log", gap_log.run), metrics)
    layouts, packs = Layouts(database, clock), PackReader(objects, clock.monotonic, gap_log)
    removals.on(layouts.forget, gap_log.forget, metrics.runs.forget)
    return _Opened(
        settings=settings,
        clock=clock,
        metrics=metrics,
        database=database,
        signer=signer,
        receivers=receivers,
        liveness=liveness,
        removals=removals,
        events=events,
        layouts=layouts,
        reader=Reader(database, layouts, packs),
        packs=packs,
        frame_budget=FrameBudget(settings.frames_mib << 20),
        objects=objects,
        replica=replica,
        ownership=replica.ownership,
        broadcasts=replica.broadcasts,
    )


async def _own_clock(stack: AsyncExitStack, database: Database, metrics: ServiceMetrics) -> Clock:
    if not database.is_shared:
        return Clock()
    shared = SharedClock(database, Clock())
    await shared.measure()
    keep_running(stack, Loop("shared clock", shared.run), metrics)
    return shared.clock


async def _start_alerting(stack: AsyncExitStack, foundation: _Opened) -> Alerting:
    outbox = Outbox(foundation.receivers.receivers, foundation.clock, foundation.settings.policy)
    alerting = await start_alerting(stack, foundation, notify=outbox.notify, page=outbox.page)
    foundation.metrics.registry.register(AlertingCollector(alerting))
    if foundation.replica.leases is not None:
        foundation.replica.leases.serve(EvaluationOwner(alerting.evaluators, alerting.ticker))
    return alerting


def _loops(services: Services, alerting: Alerting, notifying: Notifying) -> Iterator[Loop]:
    settings, clock, replica = services.settings, services.clock, services.replica
    watcher = RunWatcher(
        services.database,
        clock,
        services.liveness,
        stall_s=settings.stall_s,
        ownership=replica.ownership,
        removals=services.removals,
        lost_s=settings.lost_s,
    )
    maintenance = Maintenance(
        settings,
        clock,
        services.database,
        roller=services.roller,
        packer=services.packer,
        retention=services.retention,
        lost_runs=LostRuns(services.database, clock, lost_days=settings.lost_days),
        save_uses=services.keys.save_uses,
        replica=replica,
    )
    yield from replica.loops()
    yield from notifying.loops()
    yield Loop("pause watch", PauseWatch(clock, services.liveness).run)
    yield Loop("run watcher", watcher.run)
    yield Loop("ticker", alerting.ticker.run)
    if services.quota.most_bytes:
        yield Loop("project quota", services.quota.run)
    yield Loop("maintenance", maintenance.run)


def _build(foundation: _Opened, alerting: Alerting, notifying: Notifying) -> Services:
    settings, clock, metrics = foundation.settings, foundation.clock, foundation.metrics
    database, liveness, layouts = foundation.database, foundation.liveness, foundation.layouts
    reader, packs = foundation.reader, foundation.packs
    disk = DiskGuard(
        settings.data_dir,
        reserve_bytes=0 if database.is_shared else settings.disk_reserve_mib << 20,
        monotonic=clock.monotonic,
        reusable_bytes=lambda: database.free_bytes,
    )
    metrics.watch_disk_guard(disk)
    packer = None
    if foundation.objects is not None:
        after_s = settings.pack_after_h * 3600
        packer = Packer(database, foundation.objects, clock, after_s=after_s, observer=metrics)
    keys = Keys(database, clock)
    quota = ProjectQuota(database, clock, most_bytes=settings.project_quota_mib << 20)
    metrics.watch_quota(quota)
    runs = Runs(database, clock, liveness, foundation.removals, check_room=quota.check)
    rate_limits = RateLimits(
        requests_per_s=settings.requests_per_s,
        ingest_per_s=settings.ingest_per_s,
        refused_per_s=settings.refused_per_s,
        unpacked_mib_per_s=settings.unpacked_mib_per_s,
        monotonic=clock.monotonic,
    )
    ingest = Ingest(
        database,
        clock,
        layouts=layouts,
        events=foundation.events,
        liveness=liveness,
        committed=alerting.evaluators.committed,
        check_disk=disk.check,
        metrics_per_run=settings.metrics_per_run,
        frame_budget=foundation.frame_budget,
        on_out_of_order=note_passed_over,
        charge=rate_limits.unpacked.take,
        observer=metrics,
    )
    pulses = Pulses(database, reader, clock)
    foundation.removals.on(ingest.forget, pulses.forget, quota.on_removed)
    return Services(
        settings=settings,
        clock=clock,
        database=database,
        metrics=metrics,
        keys=keys,
        rate_limits=rate_limits,
        sessions=Sessions(database, clock, keys),
        liveness=liveness,
        runs=runs,
        removals=foundation.removals,
        signer=foundation.signer,
        events=foundation.events,
        layouts=layouts,
        ingest=ingest,
        reader=reader,
        packs=packs,
        packer=packer,
        roller=Roller(database, layouts, packs, foundation.frame_budget),
        retention=Retention(database, clock, _ages(settings)),
        pulses=pulses,
        rules=alerting.rules,
        commands=alerting.commands,
        delivery=alerting.delivery,
        alerts=alerting.alerts,
        backtests=Backtests(database, layouts, packs),
        evaluators=alerting.evaluators,
        run_removal=RunRemovalNotice(alerting.context, partial(notifying.has_sent_ends, database)),
        ticker=alerting.ticker,
        announcer=alerting.announcer,
        event_streams=EventStreams(
            keys,
            alerting.announcer,
            of_key=settings.streams_per_key,
            in_all=settings.streams,
        ),
        receivers=foundation.receivers,
        disk=disk,
        quota=quota,
        demo_run=PageRun(settings.own_url, clock, keys, runs),
        replica=foundation.replica,
    )


def _ages(settings: Settings) -> Ages:
    return Ages(settings.raw_days, settings.evidence_days, settings.rollup_days)
