"""What follows from a batch of judged frames: alerts, actions and notes on the timeline."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.frames import Event
from runwatch.rules import Transition
from runwatch.vocabulary import RunId
from runwatch_server.alerts import queries
from runwatch_server.alerts.actions.acting import Actor
from runwatch_server.alerts.actions.escalation import Escalation
from runwatch_server.alerts.context import AlertingContext
from runwatch_server.alerts.evaluation.stream import StreamKey
from runwatch_server.alerts.recording.transitions import News, Source, release, watch_recovery
from runwatch_server.alerts.recording.transitions import record as record_transitions
from runwatch_server.alerts.records import Resolution
from runwatch_server.commands.queries import find_addressee
from runwatch_server.commands.records import Addressee
from runwatch_server.rules.own_names import OUTLAST_RUNS
from runwatch_server.rules.pack import RuleSet
from runwatch_server.runs.queries import find_attempt
from runwatch_server.telemetry.committed_frames import CommittedFrame


class Recorded(NamedTuple):
    """The outcome of a batch."""

    news: list[News]
    ordered: bool
    """Whether any command was ordered."""
    is_explained: bool
    """Whether an alert of the rank is explained by one of another rank and waits for that one to
    end."""


class StreamMovedError(Exception):
    """Another process has judged the stream's frames."""


class RunRemovedError(StreamMovedError):
    """Somebody has removed the run while its frames were judged."""


class Consequences:
    """Carries out the consequences for one run. All but `lr_scale` is for use inside the
    transaction that moves the watermark, so that the frames count as judged only together with what
    follows from them."""

    def __init__(self, run_id: RunId, context: AlertingContext) -> None:
        self.run_id = run_id
        self._context = context

    async def note_gap(
        self, connection: AsyncConnection, after: CommittedFrame, seqs: range
    ) -> None:
        """Note on the run's timeline that frames were skipped."""
        event = Event(
            step=after.frame.first_step,
            kind="gap",
            at=self._context.clock.wall(),
            detail={"first_seq": seqs.start, "num_frames": len(seqs)},
        )
        await self._context.events.record(
            connection,
            self.run_id,
            (event,),
            attempt=after.attempt,
            rank=after.rank,
            segment=after.frame.segment,
        )

    async def record(
        self,
        connection: AsyncConnection,
        source: Source,
        frames: Sequence[CommittedFrame],
        transitions: Sequence[Transition],
        *,
        lr_scale: float,
    ) -> Recorded:
        now, attempt, last = self._context.clock.wall(), frames[-1].attempt, frames[-1].frame
        ordered = False
        news: list[News] = []
        async for one in record_transitions(connection, source, transitions, now=now):
            news.append(one)
            ordered |= await self._act_live(connection, source, one, lr_scale)
        released, is_explained = await release(
            connection, source, attempt, segment=last.segment, step=last.last_step, now=now
        )
        for one in released:
            news.append(one)
            ordered |= await self._act_live(connection, source, one, lr_scale)
        if source.live:
            ordered |= await self._escalate(connection, source, frames, news, lr_scale, now)
        return Recorded(news, ordered, is_explained)

    async def _act_live(
        self, connection: AsyncConnection, source: Source, news: News, lr_scale: float
    ) -> bool:
        if not (source.live and news.acts and news.actions):
            return False
        return await self.act(connection, news, lr_scale)

    async def _escalate(
        self,
        connection: AsyncConnection,
        source: Source,
        frames: Sequence[CommittedFrame],
        news: Sequence[News],
        lr_scale: float,
        now: float,
    ) -> bool:
        """Give the verdicts on recovery that are due, and take the next rungs if they are bad."""
        last, attempt = frames[-1].frame, frames[0].attempt
        in_trouble = [one.alert for one in news if one.cure_failed]
        if source.rank == 0:
            in_trouble += await watch_recovery(
                connection, self.run_id, attempt, last.segment, last.last_step, at=now
            )
        begun = [one for one in news if one.acts and one.ladder]
        if not begun and not any(alert.facts.ladder for alert in in_trouble):
            return False
        escalation = Escalation(
            actor=await self._actor(connection, lr_scale),
            page=self._context.page,
            segment=last.segment,
            step=last.last_step,
        )
        ordered = False
        for one in begun:
            ordered |= await escalation.begin(connection, one.alert, one.actions)
        for alert in in_trouble:
            ordered |= await escalation.escalate(connection, alert)
        return ordered

    @property
    def lr_scale(self) -> float:
        """The LR scale that the trainer has last reported. Read on the event loop, before the write
        that needs it."""
        return self._context.liveness.lr_scale(self.run_id)

    async def act(self, connection: AsyncConnection, news: News, lr_scale: float) -> bool:
        """Take an alert's actions as far as the policy allows. Returns whether a command came of
        it."""
        actor = await self._actor(connection, lr_scale)
        return await actor.act(connection, news.alert, news.actions, step=news.step)

    async def _actor(self, connection: AsyncConnection, lr_scale: float) -> Actor:
        addressee = await self.addressee(connection)
        return Actor(
            clock=self._context.clock,
            ids=self._context.ids,
            signer=self._context.signer,
            addressee=addressee,
            mode=addressee.policy or self._context.default_policy,
            limits=self._context.limits,
            lr_scale=lr_scale,
        )

    async def end_older(self, connection: AsyncConnection, key: StreamKey) -> list[News]:
        """End the alerts of older attempts, since a new attempt starts afresh: those of each rank
        with the rank's first frame, and with that of rank 0 those of ranks that no longer exist.
        What outlasts runs is not among them: a failure is over, and well, once the next attempt
        begins, which its own monitor says. Returns their news."""
        attempt, rank = key.attempt, key.rank
        opened = await find_attempt(connection, self.run_id, attempt) if rank == 0 else None
        older = [
            alert
            for alert in await queries.list_open(connection, self.run_id)
            if alert.attempt < attempt
            and alert.live
            and alert.rule not in OUTLAST_RUNS
            and (alert.rank == rank or (opened is not None and alert.rank >= opened.world_size))
        ]
        return await self._context.end_alerts(
            connection, older, Resolution.ATTEMPT_ENDED, f"attempt {attempt} began"
        )

    def source(
        self,
        key: StreamKey,
        addressee: Addressee,
        rule_set: RuleSet,
        *,
        segment: int,
        live: bool,
    ) -> Source:
        return self._context.source(
            self.run_id,
            addressee.project,
            rank=key.rank,
            live=live,
            rule_hashes=rule_set.hashes,
            segment=segment,
        )

    async def addressee(self, connection: AsyncConnection) -> Addressee:
        addressee = await find_addressee(connection, self.run_id)
        if addressee is None:
            raise RunRemovedError(f"run {self.run_id} was removed")
        return addressee
