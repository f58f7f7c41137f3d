"""Judging one run: its streams in order, each batch with all that follows from it in one write."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.rules.background import known_from
from runwatch.vocabulary import RunId
from runwatch_server.alerts import evaluation_queries, queries
from runwatch_server.alerts.consequences import Consequences, StreamMovedError
from runwatch_server.alerts.judging import Judge, JudgeLostError
from runwatch_server.alerts.recording import News, end_alerts
from runwatch_server.alerts.records import Evaluation, Resolution
from runwatch_server.alerts.stored_frames import read_frames
from runwatch_server.alerts.stream import FrameQueue, Stream, StreamKey
from runwatch_server.alerts.workshop import Workshop
from runwatch_server.commands.delivery import posting
from runwatch_server.commands.mailbox import Posted
from runwatch_server.commands.records import Addressee
from runwatch_server.rules.pack import RuleSet
from runwatch_server.runs.queries import find_run
from runwatch_server.telemetry.seams import CommittedFrame

log = logging.getLogger(__name__)

BATCH_FRAMES: Final = 64
GAP_TIMEOUT_S: Final = 30.0
"""A frame that is missing for so long is passed over."""


class RunEvaluation:
    """The streams of one run; `step` is never called twice at a time."""

    def __init__(self, run_id: RunId, workshop: Workshop) -> None:
        self.run_id = run_id
        self._shop = workshop
        self._consequences = Consequences(run_id, workshop)
        self._streams: dict[StreamKey, Stream] = {}
        self._arrived: dict[StreamKey, FrameQueue] = {}

    @property
    def is_behind(self) -> bool:
        """Whether frames wait to be judged; those behind a gap only once it is passed over."""
        return bool(self._arrived) or any(
            stream.queue.is_behind for stream in self._streams.values()
        )

    @property
    def num_waiting(self) -> int:
        """Frames that wait to be judged."""
        queues = [stream.queue for stream in self._streams.values()]
        return sum(queue.num_waiting for queue in (*queues, *self._arrived.values()))

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
                    await self._judge_or_lose(key, stream, frames)
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

    async def _load(self, key: StreamKey, arrived: FrameQueue) -> Stream:
        """A stream as it was left: the saved state, and the frames since, judged silently.

        Judges wait for their turn, here and below: no connection is held meanwhile, or a service
        that starts with a thousand runs would have none left for anybody else.
        """
        async with self._shop.database.read() as connection:
            addressee = await self._consequences.addressee(connection)
            stored = await self._find(connection, key)
        if stored is None:
            return await self._fresh(key, arrived, addressee)
        judge = await self._as_left(stored)
        arrived.done(stored.evaluated_seq)
        return Stream(stored, True, judge, arrived, addressee.project)

    async def _find(self, connection: AsyncConnection, key: StreamKey) -> Evaluation | None:
        return await evaluation_queries.find_evaluation(
            connection, self.run_id, key.attempt, key.rank
        )

    async def _as_left(self, stored: Evaluation) -> Judge:
        async with self._shop.database.read() as connection:
            documents = await evaluation_queries.find_rule_set(connection, stored.rule_set)
        rule_set = RuleSet.of_documents(documents)
        judge = await self._shop.judging.open(
            self.run_id, stored.rank, rule_set, state=stored.state
        )
        key = StreamKey(stored.attempt, stored.rank)
        first_seq, last_seq = stored.state_seq + 1, stored.evaluated_seq
        while frames := await self._read(key, first_seq, last_seq):
            await judge.observe(frames)
            first_seq = frames[-1].seq + 1
        return judge

    async def _fresh(self, key: StreamKey, arrived: FrameQueue, addressee: Addressee) -> Stream:
        rule_set = await self._shop.rules.in_force(addressee.project)
        async with self._shop.database.read() as connection:
            run = await find_run(connection, self.run_id)
        known = {} if run is None else known_from(run.config)
        known |= await self._end_of_last(key)
        judge = await self._shop.judging.open(self.run_id, key.rank, rule_set, known=known)
        evaluation = Evaluation(
            run_id=self.run_id,
            attempt=key.attempt,
            rank=key.rank,
            evaluated_seq=0,
            state_seq=0,
            state=await judge.state(),  # holds what is known: a restart finds it there
            rule_set=rule_set.hash,
        )
        return Stream(evaluation, False, judge, arrived, addressee.project)

    async def _end_of_last(self, key: StreamKey) -> dict[str, float]:
        """How the attempt before ended, as far as its frames were judged."""
        before = StreamKey(key.attempt - 1, key.rank)
        if before in self._streams:
            return await self._streams[before].judge.known_to_next()
        async with self._shop.database.read() as connection:
            stored = await self._find(connection, before)
        return {} if stored is None else await (await self._as_left(stored)).known_to_next()

    async def _read(
        self, key: StreamKey, first_seq: int, last_seq: int | None = None
    ) -> list[CommittedFrame]:
        """Some frames of a stream, from the disk."""
        async with self._shop.database.read() as connection:
            return await read_frames(
                connection,
                self._shop.packs,
                self.run_id,
                key,
                first_seq=first_seq,
                last_seq=last_seq,
                limit=BATCH_FRAMES,
            )

    async def _next_frames(self, key: StreamKey, stream: Stream) -> list[CommittedFrame]:
        frames = stream.queue.take(BATCH_FRAMES)
        if not frames:
            frames = await self._read(key, stream.queue.next_seq)
        return self._without_gap(key, stream, frames)

    def _without_gap(
        self, key: StreamKey, stream: Stream, frames: list[CommittedFrame]
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

    async def _judge_or_lose(
        self, key: StreamKey, stream: Stream, frames: Sequence[CommittedFrame]
    ) -> None:
        """Where it fails, the evaluator may be ahead of the disk: it is built again from there."""
        try:
            await self._judge(key, stream, frames)
        except BaseException as error:
            stream.queue.note(frames[-1].seq)
            for lost in tuple(self._streams) if isinstance(error, JudgeLostError) else (key,):
                self._build_again(lost)
            raise

    def _build_again(self, key: StreamKey) -> None:
        queue = FrameQueue(next_seq=1)
        queue.note(self._streams.pop(key).queue.newest_seq)
        self._arrived[key] = queue

    async def _judge(
        self, key: StreamKey, stream: Stream, frames: Sequence[CommittedFrame]
    ) -> None:
        await self._follow_rules(key, stream)
        judge = stream.judge
        transitions = await judge.observe(frames)
        after = replace(stream.evaluation, evaluated_seq=frames[-1].seq)
        if stream.state_is_due:
            state = await judge.state()
            after = replace(after, state_seq=frames[-1].seq, state=state)
        lr_scale = self._consequences.lr_scale

        async def work(connection: AsyncConnection) -> tuple[list[News], list[Posted] | None]:
            passed_over = range(stream.evaluation.evaluated_seq + 1, frames[0].seq)
            await self._store(connection, stream, after)
            if len(passed_over):
                await self._consequences.note_gap(connection, frames[0], passed_over)
            if not transitions and await self._is_quiet(connection, key, stream):
                return [], None
            addressee = await self._consequences.addressee(connection)
            live = key.attempt == addressee.attempt and not frames[0].late
            source = self._consequences.source(
                key, addressee, judge.rule_set, segment=frames[0].frame.segment, live=live
            )
            news, ordered = await self._consequences.record(
                connection, source, frames, transitions, lr_scale=lr_scale
            )
            return news, await posting(connection, self.run_id) if ordered else None

        news, posted = await self._shop.database.write(work, of=self.run_id)
        is_saved = after.state_seq == frames[-1].seq
        stream.unsaved_bytes = 0 if is_saved else stream.unsaved_bytes + _num_bytes(frames)
        stream.evaluation, stream.is_stored = after, True
        stream.queue.done(frames[-1].seq)
        if posted is not None:
            self._shop.delivery.post(self.run_id, posted)
        self._shop.on_news(news)

    async def _is_quiet(self, connection: AsyncConnection, key: StreamKey, stream: Stream) -> bool:
        """Whether frames that brought no transition leave nothing to do: the common case, which
        must cost no more than its watermark."""
        if not stream.is_stored or stream.evaluation.evaluated_seq == 0:
            return False
        return key.rank != 0 or not await queries.list_watched(connection, self.run_id)

    async def _follow_rules(self, key: StreamKey, stream: Stream) -> None:
        """Take over rules that changed, at a boundary that a restart will find again."""
        rule_set = await self._shop.rules.in_force(stream.project)
        if rule_set.hash == stream.judge.rule_set.hash:
            return
        stream.judge = await stream.judge.with_rules(rule_set)
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
            why = "the rule was changed or removed"
            await end_alerts(
                connection,
                orphans,
                resolution=Resolution.RULE_CHANGED,
                why=why,
                at=now,
                tell=self._shop.tell,
            )

        await self._store_state(key, stream, end_orphans)
        log.info("run %s: judged by other rules from here on", self.run_id)

    async def _store_state(
        self,
        key: StreamKey,
        stream: Stream,
        also: Callable[[AsyncConnection], Awaitable[None]] | None = None,
    ) -> None:
        state = await stream.judge.state()
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

        await self._shop.database.write(work, of=self.run_id)
        stream.evaluation, stream.is_stored = after, True

    async def _store(self, connection: AsyncConnection, stream: Stream, after: Evaluation) -> None:
        await self._shop.ownership.check(connection, self.run_id)
        if not stream.is_stored or after.rule_set != stream.evaluation.rule_set:
            rule_set = stream.judge.rule_set
            await evaluation_queries.store_rule_set(connection, rule_set.hash, rule_set.documents)
        if not stream.is_stored:
            await evaluation_queries.insert_evaluation(connection, after)
        elif not await evaluation_queries.advance_evaluation(connection, stream.evaluation, after):
            raise StreamMovedError(f"run {self.run_id}: frames were judged by somebody else")


def _num_bytes(frames: Sequence[CommittedFrame]) -> int:
    return sum(frame.frame.stats.nbytes + frame.frame.metrics.nbytes for frame in frames)
