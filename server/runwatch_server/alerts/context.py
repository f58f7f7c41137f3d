"""What judging and its consequences need from the service; one for all runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.policy import PolicyLimits
from runwatch.vocabulary import PolicyMode, RunId
from runwatch_server.alerts.judging import Judging
from runwatch_server.alerts.recording.outcomes import Outcomes
from runwatch_server.alerts.recording.transitions import News, Notify, Source, end_alerts
from runwatch_server.alerts.records import AlertRecord, Resolution
from runwatch_server.clock import Clock
from runwatch_server.commands.delivery import Delivery
from runwatch_server.commands.ids import OrderedIds
from runwatch_server.commands.service import Commands
from runwatch_server.commands.signing import Signer
from runwatch_server.db import Database
from runwatch_server.replicas.ownership import Ownership
from runwatch_server.rules.service import Rules
from runwatch_server.runs.liveness import Liveness
from runwatch_server.telemetry.events import EventLog
from runwatch_server.telemetry.frame_budget import FrameBudget
from runwatch_server.telemetry.layout_store import Layouts
from runwatch_server.telemetry.packs.reading import PackReader


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertingContext:
    """Parts of the service, and what is often built from several of them."""

    database: Database
    clock: Clock
    ids: OrderedIds
    signer: Signer
    rules: Rules
    commands: Commands
    delivery: Delivery
    liveness: Liveness
    events: EventLog
    packs: PackReader
    frame_budget: FrameBudget
    layouts: Layouts
    outcomes: Outcomes
    ownership: Ownership
    default_policy: PolicyMode
    limits: PolicyLimits
    judging: Judging
    on_news: Callable[[Sequence[News]], None]
    """Called after the commit."""
    notify: Notify
    """Called within the transaction."""
    page: Notify
    """Called within the transaction for an alert that a person must look at, whatever was sent
    about it before."""

    def source(
        self,
        run_id: RunId,
        project: str,
        *,
        rank: int = 0,
        live: bool = True,
        rule_hashes: Mapping[str, str],
        segment: int = 0,
    ) -> Source:
        """The source of transitions that are about to be recorded."""
        return Source(
            run_id=run_id,
            project=project,
            rank=rank,
            live=live,
            rule_hashes=rule_hashes,
            new_id=self.ids.new,
            notify=self.notify,
            segment=segment,
        )

    async def end_alerts(
        self,
        connection: AsyncConnection,
        alerts: Sequence[AlertRecord],
        resolution: Resolution,
        why: str,
        *,
        last_step: int | None = None,
    ) -> list[News]:
        """Resolve alerts that nothing else will ever resolve (see `recording.end_alerts`). The
        news is for `on_news`, after the commit."""
        return await end_alerts(
            connection,
            alerts,
            resolution=resolution,
            why=why,
            at=self.clock.wall(),
            notify=self.notify,
            last_step=last_step,
        )
