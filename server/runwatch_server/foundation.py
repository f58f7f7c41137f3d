"""What telemetry, alerts and notifications all need: opened before them and closed after them."""

from dataclasses import dataclass

from runwatch_server.clock import Clock
from runwatch_server.commands.signing import Signer
from runwatch_server.db import Database
from runwatch_server.replicas.broadcasts import Broadcasts
from runwatch_server.replicas.ownership import Ownership
from runwatch_server.runs.liveness import Liveness
from runwatch_server.runs.removals import Removals
from runwatch_server.settings import Settings
from runwatch_server.telemetry.events import EventLog
from runwatch_server.telemetry.frame_budget import FrameBudget
from runwatch_server.telemetry.layout_store import Layouts
from runwatch_server.telemetry.packs.reading import PackReader
from runwatch_server.telemetry.reading import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Foundation:
    settings: Settings
    clock: Clock
    database: Database
    signer: Signer
    liveness: Liveness
    removals: Removals
    events: EventLog
    layouts: Layouts
    reader: Reader
    packs: PackReader
    frame_budget: FrameBudget
    ownership: Ownership
    """Which runs this replica looks after."""
    broadcasts: Broadcasts
    """Messages between replicas."""
