"""A service without its HTTP: real database, real ingest, real evaluators, a clock of our own."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field

import msgspec
import numpy as np
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.server.harness import Storage, bring_tables
from tests.waiting import until_so

from runwatch.alerts import AlertState
from runwatch.codec import encode_frame
from runwatch.commands import ACTION_KINDS, CommandState, Receipt
from runwatch.frames import Event, Frame, Scalar
from runwatch.layouts import Layer, Layout
from runwatch.messages import AttemptClose, AttemptOpen, RunOpen
from runwatch.ulids import ulid
from runwatch.vocabulary import CommandId, PolicyMode, RunId
from runwatch_server.alerts.assembly import Alerting, start_alerting
from runwatch_server.alerts.evaluation.progress_queries import note_passed_over
from runwatch_server.alerts.records import AlertFilter, AlertRecord
from runwatch_server.alerts.tables import evaluations
from runwatch_server.auth.keys import KeyScope, Principal
from runwatch_server.clock import Clock
from runwatch_server.commands.queries import list_commands
from runwatch_server.commands.records import CommandRecord
from runwatch_server.commands.signing import Signer
from runwatch_server.db import Database, make_store
from runwatch_server.foundation import Foundation
from runwatch_server.monitoring.service_metrics import ServiceMetrics
from runwatch_server.replicas.broadcasts import Broadcasts
from runwatch_server.replicas.ownership import SoleOwner
from runwatch_server.runs.liveness import Liveness
from runwatch_server.runs.removals import Removals
from runwatch_server.runs.service import Runs
from runwatch_server.schema import upgrade_schema
from runwatch_server.settings import Settings
from runwatch_server.signing import KeyRing
from runwatch_server.telemetry.events import EventLog
from runwatch_server.telemetry.frame_budget import FrameBudget
from runwatch_server.telemetry.ingest import Ingest
from runwatch_server.telemetry.layout_store import Layouts
from runwatch_server.telemetry.packs.reading import PackReader
from runwatch_server.telemetry.reading import Reader

RUN = RunId(ulid(1, bytes(10)))
LAYOUT = Layout((Layer("embed"), Layer("head")), ("grad_norm", "nonfinite"))
ADMIN = Principal("tests", "tests", frozenset({KeyScope.ADMIN}), None)


@dataclass
class HandClock:
    """Two clocks that stand still until they are moved."""

    wall_s: float = 1_700_000_000.0
    monotonic_s: float = 1000.0

    def advance(self, seconds: float) -> None:
        self.wall_s += seconds
        self.monotonic_s += seconds

    def as_clock(self) -> Clock:
        return Clock(wall=lambda: self.wall_s, monotonic=lambda: self.monotonic_s)


@dataclass
class Bench:
    """One life of the service, with one run to judge."""

    alerting: Alerting
    runs: Runs
    ingest: Ingest
    layouts: Layouts
    liveness: Liveness
    database: Database
    clock: HandClock
    seqs: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

    async def open(self, *, policy: PolicyMode = PolicyMode.AUTO, num_ranks: int = 1) -> int:
        """The run with a new attempt; returns the attempt's number."""
        await self.runs.open(RunOpen(RUN, "llama"), ADMIN)
        await self.runs.change(RUN, name=None, policy=policy, by="a test")
        await self.layouts.put(RUN, LAYOUT.hash, msgspec.json.encode(LAYOUT.to_document()))
        known = await self.runs.list_attempts(RUN)
        token = ulid(2 + len(known), bytes(10))
        opened = AttemptOpen(token, 0.0, world_size=num_ranks, allow=ACTION_KINDS)
        return (await self.runs.open_attempt(RUN, opened, by="a test")).attempt

    async def send(
        self,
        losses: Sequence[float],
        *,
        first_step: int,
        attempt: int = 1,
        segment: int = 0,
        seq: int | None = None,
        late: bool = False,
        nonfinite: Sequence[float] = (0.0, 0.0),
        totals: Sequence[float] | None = None,
        rank: int = 0,
        events: Sequence[Event] = (),
        lost: int = 0,
    ) -> None:
        """Take in one frame of losses, and of how many elements of the gradients were not finite;
        of another rank than 0, one without layers."""
        held = self.seqs.get((attempt, rank), 0)
        seq = held + 1 if seq is None else seq
        self.seqs[attempt, rank] = max(seq, held)
        num = len(losses)
        frame = Frame(
            attempt=attempt,
            rank=rank,
            seq=seq,
            segment=segment,
            first_step=first_step,
            times=np.arange(first_step, first_step + num, dtype=np.float64),
            metric_names=("loss",) if totals is None else ("loss", "nonfinite"),
            events=tuple(events),
            lost=lost,
            metrics=np.column_stack([losses] if totals is None else [losses, totals]),
            layout_hash="" if rank or not num else LAYOUT.hash,
            stats=np.empty((num, 0), np.float32)
            if rank or not num
            else np.tile(np.array([1.0, 1.0, *nonfinite], np.float32), (num, 1)),
        )
        await self.ingest.put_frame(RUN, encode_frame(frame), proven=attempt, late=late)

    async def settle(self) -> None:
        """Wait until all that was taken in is judged."""
        await until_so(lambda: self.alerting.evaluators.is_drained(RUN))

    async def pause_of_evaluators(self) -> None:
        """Wait until nothing more is done, though frames may wait."""
        await until_so(lambda: not self.alerting.evaluators.health.num_busy)

    async def spoil_state(self, state: bytes) -> None:
        """Put something else where the evaluators' state is kept."""

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(evaluations.update().values(state=state))

        await self.database.write(work)

    async def close(self) -> None:
        await self.runs.close_attempt(RUN, 1, AttemptClose("finished"), by="a test")

    async def alerts(self, *states: AlertState) -> list[AlertRecord]:
        """The run's alerts, oldest first."""
        wanted = AlertFilter(run_id=RUN, states=states)
        found = await self.alerting.alerts.list(wanted, limit=500)
        return found[::-1]

    async def commands(self) -> list[CommandRecord]:
        """The run's commands, oldest first."""
        async with self.database.read() as connection:
            return (await list_commands(connection, RUN))[::-1]

    async def answer(
        self,
        command_id: CommandId,
        state: CommandState,
        *,
        step: int = 0,
        attempt: int = 1,
        rank: int = 0,
        detail: dict[str, Scalar] | None = None,
    ) -> None:
        receipt = Receipt(command_id, attempt, rank, state, step, detail or {})
        await self.alerting.commands.receive(command_id, receipt, by="a test")


def healthy(count: int) -> list[float]:
    """Losses that no rule minds."""
    return [2.0 + 0.01 * (step % 5) for step in range(count)]


def rule_file(
    name: str,
    when: str,
    *,
    for_steps: int = 0,
    keep_steps: int = 0,
    actions: Sequence[object] = (),
) -> dict[str, object]:
    """A file of one rule about the run."""
    rule: dict[str, object] = {
        "alert": name,
        "scope": "run",
        "when": when,
        "for": {"steps": for_steps},
        "keep_firing_for": {"steps": keep_steps},
        "actions": list(actions),
    }
    return {"version": 1, "groups": [{"name": "tests", "rules": [rule]}]}


StartService = Callable[[], AbstractAsyncContextManager[Bench]]


async def start(
    stack: AsyncExitStack,
    storage: Storage,
    hand: HandClock,
    *,
    judge_processes: int = 0,
    frame_budget: FrameBudget | None = None,
    states_mib: int = 2048,
) -> Bench:
    """`judge_processes`: none, where a test is not about them, whatever the database; each takes a
    second to start. `frame_budget`: that of the settings, where it is not about it; so with
    `states_mib`."""
    clock = hand.as_clock()
    await bring_tables(storage)
    database = await stack.enter_async_context(
        Database(make_store(storage.data_dir, storage.database_url))
    )
    await database.migrate(upgrade_schema)
    database.start()
    liveness, removals = Liveness(), Removals()
    runs = Runs(database, clock, liveness, removals)
    await runs.listen()
    events = EventLog(clock)
    layouts = Layouts(database, clock)
    settings = Settings(
        data_dir=storage.data_dir,
        database_url=storage.database_url,
        judge_processes=judge_processes,
        states_mib=states_mib,
    )
    packs = PackReader(None, clock.monotonic)
    frame_budget = frame_budget or FrameBudget(settings.frames_mib << 20)
    foundation = Foundation(
        settings=settings,
        clock=clock,
        database=database,
        signer=Signer(KeyRing()),
        liveness=liveness,
        removals=removals,
        events=events,
        layouts=layouts,
        reader=Reader(database, layouts, packs),
        packs=packs,
        frame_budget=frame_budget,
        ownership=SoleOwner(),
        broadcasts=Broadcasts("", None),
    )
    alerting = await start_alerting(stack, foundation)
    ingest = Ingest(
        database,
        clock,
        layouts=layouts,
        events=events,
        liveness=liveness,
        committed=alerting.evaluators.committed,
        metrics_per_run=settings.metrics_per_run,
        frame_budget=frame_budget,
        on_out_of_order=note_passed_over,
        observer=ServiceMetrics(),
    )
    return Bench(alerting, runs, ingest, layouts, liveness, database, hand)
