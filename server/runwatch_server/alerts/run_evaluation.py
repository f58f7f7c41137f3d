"""Judging one run: its streams in order, each batch with all that follows from it in one write."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.frames import Event
from runwatch.rules import Transition
from runwatch.vocabulary import RunId
from runwatch_server.alerts import evaluation_queries, queries
from runwatch_server.alerts.acting import Actor
from runwatch_server.alerts.recording import News, Source, end_alerts, record, watch_recovery
from runwatch_server.alerts.records import Evaluation
from runwatch_server.alerts.stored_frames import iterate_frames, read_frames
from runwatch_server.alerts.stream import FrameQueue, StreamJudge, StreamKey
from runwatch_server.alerts.workshop import Workshop
from runwatch_server.commands.mailbox import Posted
from runwatch_server.commands.queries import find_addressee
from runwatch_server.commands.records import Addressee
from runwatch_server.commands.service import posting
from runwatch_server.rules.pack import RuleSet
from runwatch_server.telemetry.seams import CommittedFrame

log = logging.getLogger(__name__)

BATCH_FRAMES: Final = 64
STATE_EVERY_FRAMES: Final = 64
"""Frames between two savings of an evaluator's state, at least."""
STATE_SHARE: Final = 0.25
"""Of what is written, that states may be: windows of many layers are larger than their frames."""
STATE_AT_MOST_FRAMES: Final = 512
"""Frames that a restart judges again, silently, at most."""
GAP_TIMEOUT_S: Final = 30.0
"""A frame that is missing for so long is passed over."""


class StreamMovedError(Exception):
    """Somebody else has judged the stream's frames."""


@dataclass(slots=True)
class _Stream:
    evaluation: Evaluation
    """As it is on disk."""
    is_stored: bool
    judge: StreamJudge
    queue: FrameQueue
    project: str
    gap_since: float | None = None
    unsaved_bytes: int = 0
    """Of the frames judged since the state was saved."""

    @property
    def state_is_due(self) -> bool:
        """Once the frames judged so far are to be saved."""
        num_frames = self.queue.next_seq - 1 - self.evaluation.state_seq
        if num_frames < STATE_EVERY_FRAMES:
            return False
        is_cheap = len(self.evaluation.state) <= STATE_SHARE * self.unsaved_bytes
        return is_cheap or num_frames >= STATE_AT_MOST_FRAMES


class RunEvaluation:
    """The streams of one run; `step` is never called twice at a time."""

    def __init__(self, run_id: RunId, workshop: Workshop) -> None:
        self.run_id = run_id
        self._shop = workshop
        self._streams: dict[StreamKey, _Stream] = {}
        self._arrived: dict[StreamKey, FrameQueue] = {}

    @property
    def is_behind(self) -> bool:
        """Whether frames wait to be judged; those behind a gap only once it is passed over."""
        return bool(self._arrived) or any(
            stream.queue.is_behind for stream in self._streams.values()
        )

    @property
    def gap_left_s(self) -> float | None:
        """Seconds until a missing frame is passed over; None where none is waited for."""
        now = self._shop.clock.monotonic()
        waits = [
            stream.gap_since + GAP_TIMEOUT_S - now
            for stream in self._streams.values()
            if stream.gap_since is not None
        ]
        return min(waits, default=None)

    def put(self, frame: CommittedFrame) -> None:
        key = StreamKey(frame.attempt, frame.rank)
        self._queue(key).put(frame)

    def note(self, key: StreamKey, newest_seq: int) -> None:
        """Frames of a stream up to this one are on disk."""
        self._queue(key).note(newest_seq)

    async def step(self) -> bool:
        """Judge one batch of frames; whether there was one."""
        for key in tuple(self._arrived):
            self._streams[key] = await self._load(key, self._arrived[key])
            del self._arrived[key]
        for key in sorted(self._streams, key=lambda key: (key.attempt, key.rank)):
            stream = self._streams[key]
            if stream.queue.is_behind:
                frames = await self._next_frames(key, stream)
                if frames:
                    await self._judge(key, stream, frames)
                    return True
        return False

    async def save(self) -> None:
        """Store every evaluator's state, so that the next start has nothing to judge again."""
        for key, stream in self._streams.items():
            if stream.is_stored and stream.evaluation.state_seq < stream.evaluation.evaluated_seq:
                await self._store_state(key, stream)

    def _queue(self, key: StreamKey) -> FrameQueue:
        """Where a stream's frames go; until it is loaded, to a place of their own."""
        if key in self._streams:
            return self._streams[key].queue
        return self._arrived.setdefault(key, FrameQueue(next_seq=1))

    async def _load(self, key: StreamKey, arrived: FrameQueue) -> _Stream:
        """A stream as it was left: the saved state, and the frames since, judged silently."""
        async with self._shop.database.read() as connection:
            addressee = await self._addressee(connection)
            stored = await evaluation_queries.find_evaluation(
                connection, self.run_id, key.attempt, key.rank
            )
            if stored is None:
                return await self._fresh(key, arrived, addressee)
            documents = await evaluation_queries.find_rule_set(connection, stored.rule_set)
            rule_set = RuleSet.of_documents(documents)
            judge = await self._shop.compute(lambda: StreamJudge(key.rank, rule_set, stored.state))
            async for frames in iterate_frames(
                connection,
                self.run_id,
                key,
                first_seq=stored.state_seq + 1,
                last_seq=stored.evaluated_seq,
            ):
                await self._shop.compute(partial(judge.observe, frames))
        arrived.done(stored.evaluated_seq)
        return _Stream(stored, True, judge, arrived, addressee.project)

    async def _fresh(self, key: StreamKey, arrived: FrameQueue, addressee: Addressee) -> _Stream:
        rule_set = await self._shop.rules.in_force(addressee.project)
        evaluation = Evaluation(
            run_id=self.run_id,
            attempt=key.attempt,
            rank=key.rank,
            evaluated_seq=0,
            state_seq=0,
            state=b"",
            rule_set=rule_set.hash,
        )
        judge = StreamJudge(key.rank, rule_set)
        return _Stream(evaluation, False, judge, arrived, addressee.project)

    async def _next_frames(self, key: StreamKey, stream: _Stream) -> list[CommittedFrame]:
        frames = stream.queue.take(BATCH_FRAMES)
        if not frames:
            async with self._shop.database.read() as connection:
                frames = await read_frames(
                    connection,
                    self.run_id,
                    key,
                    first_seq=stream.queue.next_seq,
                    limit=BATCH_FRAMES,
                )
        return self._without_gap(key, stream, frames)

    def _without_gap(
        self, key: StreamKey, stream: _Stream, frames: list[CommittedFrame]
    ) -> list[CommittedFrame]:
        """The frames up to the first that is missing; past it once it was waited for."""
        first_seq = stream.queue.next_seq
        if not frames:  # removed by retention before they were judged
            stream.queue.done(stream.queue.newest_seq)
            return []
        if frames[0].seq > first_seq:
            now = self._shop.clock.monotonic()
            stream.gap_since = now if stream.gap_since is None else stream.gap_since
            if now - stream.gap_since < GAP_TIMEOUT_S:
                return []
            log.warning(
                "run %s, attempt %d, rank %d: frames %d to %d did not come and are passed over",
                self.run_id,
                key.attempt,
                key.rank,
                first_seq,
                frames[0].seq - 1,
            )
            first_seq = frames[0].seq
        stream.gap_since = None
        in_line = [frame for index, frame in enumerate(frames) if frame.seq == first_seq + index]
        # Late frames command nothing; they must not silence the live ones behind them.
        return list(takewhile(lambda frame: frame.late == in_line[0].late, in_line))

    async def _judge(
        self, key: StreamKey, stream: _Stream, frames: Sequence[CommittedFrame]
    ) -> None:
        await self._follow_rules(key, stream)
        judge = stream.judge
        transitions = await self._shop.compute(lambda: judge.observe(frames))
        after = replace(stream.evaluation, evaluated_seq=frames[-1].seq)
        if stream.state_is_due:
            state = await self._shop.compute(judge.state)
            after = replace(after, state_seq=frames[-1].seq, state=state)
        lr_scale = self.lr_scale

        async def work(connection: AsyncConnection) -> tuple[list[News], list[Posted] | None]:
            passed_over = range(stream.evaluation.evaluated_seq + 1, frames[0].seq)
            await self._store(connection, stream, after)
            if len(passed_over):
                await self._note_gap(connection, frames[0], passed_over)
            if not transitions and await self._is_quiet(connection, key, stream):
                return [], None
            addressee = await self._addressee(connection)
            live = key.attempt == addressee.attempt and not frames[0].late
            source = self._source(key, addressee, stream, live=live)
            news, ordered = await self._record(connection, source, frames, transitions, lr_scale)
            return news, await posting(connection, self.run_id) if ordered else None

        try:
            news, posted = await self._shop.database.write(work)
        except BaseException:
            self._streams.pop(key)  # its evaluator is ahead of the disk: built again from there
            self._arrived[key] = FrameQueue(next_seq=1)
            self._arrived[key].note(max(frames[-1].seq, stream.queue.newest_seq))
            raise
        is_saved = after.state_seq == frames[-1].seq
        stream.unsaved_bytes = 0 if is_saved else stream.unsaved_bytes + _num_bytes(frames)
        stream.evaluation, stream.is_stored = after, True
        stream.queue.done(frames[-1].seq)
        if posted is not None:
            self._shop.commands.post(self.run_id, posted)
        self._shop.on_news(news)

    async def _is_quiet(self, connection: AsyncConnection, key: StreamKey, stream: _Stream) -> bool:
        """Whether frames that brought no transition leave nothing to do: the common case, which
        must cost no more than its watermark."""
        if not stream.is_stored or stream.evaluation.evaluated_seq == 0:
            return False
        return key.rank != 0 or not await queries.list_watched(connection, self.run_id)

    async def _note_gap(
        self, connection: AsyncConnection, after: CommittedFrame, seqs: range
    ) -> None:
        """Show on the run's timeline what was passed over."""
        event = Event(
            step=after.frame.first_step,
            kind="gap",
            at=self._shop.clock.wall(),
            detail={"first_seq": seqs.start, "num_frames": len(seqs)},
        )
        await self._shop.events.record(
            connection,
            self.run_id,
            (event,),
            attempt=after.attempt,
            rank=after.rank,
            segment=after.frame.segment,
        )

    async def _record(
        self,
        connection: AsyncConnection,
        source: Source,
        frames: Sequence[CommittedFrame],
        transitions: Sequence[Transition],
        lr_scale: float,
    ) -> tuple[list[News], bool]:
        now = self._shop.clock.wall()
        attempt = frames[0].attempt
        if source.live and frames[0].seq == 1:
            await self._end_older(connection, attempt, source.rank, now)
        ordered = False
        news: list[News] = []
        async for one in record(connection, source, transitions, now=now):
            news.append(one)
            if source.live and one.is_first_firing and one.transition.actions:
                ordered |= await self.act(connection, one, lr_scale)
        if source.live and source.rank == 0:
            last_step = frames[-1].frame.last_step
            await watch_recovery(connection, self.run_id, attempt, last_step, at=now)
        return news, ordered

    @property
    def lr_scale(self) -> float:
        """In force in the trainer, as far as it has said. Asked on the event loop, before the
        write that needs it."""
        facts = self._shop.liveness.facts(self.run_id, now=self._shop.clock.monotonic())
        return facts[0].lr_scale if facts else 1.0

    async def act(self, connection: AsyncConnection, news: News, lr_scale: float) -> bool:
        """Put what an alert asks for before the policy; whether a command came of it."""
        addressee = await self._addressee(connection)
        actor = Actor(
            clock=self._shop.clock,
            ids=self._shop.ids,
            addressee=addressee,
            mode=addressee.policy or self._shop.default_policy,
            limits=self._shop.limits,
            lr_scale=lr_scale,
        )
        transition = news.transition
        return await actor.act(connection, news.alert, transition.actions, step=transition.step)

    async def _follow_rules(self, key: StreamKey, stream: _Stream) -> None:
        """Take over rules that changed, at a boundary that a restart will find again."""
        rule_set = await self._shop.rules.in_force(stream.project)
        if rule_set.hash == stream.judge.rule_set.hash:
            return
        judge = stream.judge
        stream.judge = await self._shop.compute(lambda: judge.with_rules(rule_set))
        kept = {(rule.name, rule.hash) for rule in rule_set.rules}

        async def end_orphans(connection: AsyncConnection) -> None:
            orphans = [
                alert
                for alert in await queries.list_open(connection, self.run_id)
                if (alert.attempt, alert.rank) == (key.attempt, key.rank)
                and alert.rule_hash
                and (alert.rule, alert.rule_hash) not in kept
            ]
            now = self._shop.clock.wall()
            await end_alerts(connection, orphans, why="the rule was changed or removed", at=now)

        await self._store_state(key, stream, end_orphans)
        log.info("run %s: judged by other rules from here on", self.run_id)

    async def _store_state(
        self,
        key: StreamKey,
        stream: _Stream,
        also: Callable[[AsyncConnection], Awaitable[None]] | None = None,
    ) -> None:
        state = await self._shop.compute(stream.judge.state)
        after = replace(
            stream.evaluation,
            state_seq=stream.evaluation.evaluated_seq,
            state=state,
            rule_set=stream.judge.rule_set.hash,
        )

        async def work(connection: AsyncConnection) -> None:
            await self._store(connection, stream, after)
            if also is not None:
                await also(connection)

        await self._shop.database.write(work)
        stream.evaluation, stream.is_stored = after, True

    async def _store(self, connection: AsyncConnection, stream: _Stream, after: Evaluation) -> None:
        if not stream.is_stored or after.rule_set != stream.evaluation.rule_set:
            rule_set = stream.judge.rule_set
            await evaluation_queries.store_rule_set(connection, rule_set.hash, rule_set.documents)
        if not stream.is_stored:
            await evaluation_queries.insert_evaluation(connection, after)
        elif not await evaluation_queries.advance_evaluation(connection, stream.evaluation, after):
            raise StreamMovedError(f"run {self.run_id}: frames were judged by somebody else")

    async def _end_older(
        self, connection: AsyncConnection, attempt: int, rank: int, now: float
    ) -> None:
        """A new attempt starts with a clean sheet."""
        older = [
            alert
            for alert in await queries.list_open(connection, self.run_id)
            if alert.attempt < attempt and alert.rank == rank and alert.live
        ]
        await end_alerts(connection, older, why=f"attempt {attempt} began", at=now)

    def _source(
        self, key: StreamKey, addressee: Addressee, stream: _Stream, *, live: bool
    ) -> Source:
        return Source(
            run_id=self.run_id,
            project=addressee.project,
            rank=key.rank,
            live=live,
            rule_hashes=stream.judge.rule_set.hashes,
            new_id=self._shop.ids.new,
        )

    async def _addressee(self, connection: AsyncConnection) -> Addressee:
        addressee = await find_addressee(connection, self.run_id)
        if addressee is None:
            raise StreamMovedError(f"run {self.run_id} was removed")
        return addressee


def _num_bytes(frames: Sequence[CommittedFrame]) -> int:
    return sum(frame.frame.stats.nbytes + frame.frame.metrics.nbytes for frame in frames)
