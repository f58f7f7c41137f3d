"""The parts of the service, built once by `assembly.py` and handed to every route."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from runwatch_server.alerts.announcements import Announcer
from runwatch_server.alerts.backtests.runner import Backtests
from runwatch_server.alerts.evaluation.evaluators import Evaluators
from runwatch_server.alerts.run_removal import RunRemovalNotice
from runwatch_server.alerts.service import Alerts
from runwatch_server.alerts.ticker import Ticker
from runwatch_server.auth.rate_limits import RateLimits
from runwatch_server.auth.service import Keys
from runwatch_server.auth.sessions import Sessions
from runwatch_server.clock import Clock
from runwatch_server.commands.delivery import Delivery
from runwatch_server.commands.service import Commands
from runwatch_server.commands.signing import Signer
from runwatch_server.db import Database
from runwatch_server.disk import DiskGuard
from runwatch_server.event_streams import EventStreams
from runwatch_server.fleet.pulse import Pulses
from runwatch_server.monitoring.service_metrics import ServiceMetrics
from runwatch_server.notify.receivers import Receivers
from runwatch_server.page.demo_run import PageRun
from runwatch_server.replicas.assembly import Replica
from runwatch_server.retention.service import Retention
from runwatch_server.rules.service import Rules
from runwatch_server.runs.liveness import Liveness
from runwatch_server.runs.removals import Removals
from runwatch_server.runs.service import Runs
from runwatch_server.settings import Settings
from runwatch_server.telemetry.events import EventLog
from runwatch_server.telemetry.ingest import Ingest
from runwatch_server.telemetry.layout_store import Layouts
from runwatch_server.telemetry.packs.packing import Packer
from runwatch_server.telemetry.packs.reading import PackReader
from runwatch_server.telemetry.quota import ProjectQuota
from runwatch_server.telemetry.reading import Reader
from runwatch_server.telemetry.roller import Roller


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """One instance of each part; no module keeps a global of its own."""

    settings: Settings
    clock: Clock
    database: Database
    metrics: ServiceMetrics
    keys: Keys
    rate_limits: RateLimits
    sessions: Sessions
    liveness: Liveness
    runs: Runs
    removals: Removals
    signer: Signer
    events: EventLog
    layouts: Layouts
    ingest: Ingest
    disk: DiskGuard
    quota: ProjectQuota
    reader: Reader
    packs: PackReader
    packer: Packer | None
    """None if there is no object store."""
    roller: Roller
    retention: Retention
    pulses: Pulses
    rules: Rules
    commands: Commands
    delivery: Delivery
    alerts: Alerts
    backtests: Backtests
    evaluators: Evaluators
    run_removal: RunRemovalNotice
    ticker: Ticker
    announcer: Announcer
    event_streams: EventStreams
    replica: Replica
    receivers: Receivers
    demo_run: PageRun

    def release_waiting(self) -> None:
        """Answers all who wait for news, so that stopping need not wait for them."""
        self.delivery.close()
        self.announcer.close()


def services_of(request: Request) -> Services:
    services = request.app.state.services
    assert isinstance(services, Services), "the lifespan sets them before the first request"
    return services


async def _services(request: Request) -> Services:
    """Async although it awaits nothing: FastAPI would run a plain function in a thread."""
    return services_of(request)


CurrentServices = Annotated[Services, Depends(_services)]
