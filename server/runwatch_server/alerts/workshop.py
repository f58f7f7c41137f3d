"""What judging needs, one for all runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runwatch.policy import PolicyLimits
from runwatch.vocabulary import PolicyMode
from runwatch_server.alerts.judging import Judging
from runwatch_server.alerts.recording import News, Tell
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
from runwatch_server.telemetry.packs.reading import PackReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What judging needs; one for all runs."""

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
    ownership: Ownership
    default_policy: PolicyMode
    limits: PolicyLimits
    judging: Judging
    on_news: Callable[[Sequence[News]], None]
    """After the commit."""
    tell: Tell
    """Within the transaction."""
    page: Tell
    """Likewise, of an alert that a person must look at, whatever was told of it before."""
