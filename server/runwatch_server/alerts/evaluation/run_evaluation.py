"""Judges one run: its streams in order, each batch with all its consequences in one transaction."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.vocabulary import RunId
from runwatch_server.alerts import queries
from runwatch_server.alerts.context import AlertingContext
from runwatch_server.alerts.evaluation import progress_queries
from runwatch_server.alerts.evaluation.consequences import Consequences, StreamMovedError
from runwatch_server.alerts.evaluation.onset_order import START, Place, end_of, sound_until
from runwatch_server.alerts.evaluation.state_budget import Needs
from runwatch_server.alerts.evaluation.stream import MAX_HELD, FrameQueue, Stream, StreamKey
from runwatch_server.alerts.evaluation.stream_loading import BATCH_FRAMES, StreamLoader
from runwatch_server.alerts.judging import JudgeLostError
from runwatch_server.alerts.recording.transitions import News
from runwatch_server.alerts.records import Evaluation, Resolution
from runwatch_server.commands.delivery import posting
from runwatch_server.commands.mailbox import Posted
from runwatch_server.telemetry.committed_frames import CommittedFrame

log = logging.getLogger(__name__)


class _BatchOutcome(NamedTuple):
    """The outcome of a batch that had consequences besides its watermark."""

    news: list[News]
    is_live: bool
    is_explained: bool
    posted: list[Posted] | None
    """The commands under way after it; None if it ordered none."""


class _Move(NamedTuple):
    """How far a batch moves its stream."""

    after: Evaluation
    skipped: range
    """Numbers whose frames did not come."""
    came_late: bool
    """Whether it is of a frame that the watermark had passed."""


class RunEvaluation:
    """The streams of one run; `step` must not be called twice at a time."""

    def __init__(
        self, run_id: RunId, context: AlertingContext, on_missing: Callable[[int], None]
    ) -> None:
        """`on_missing` gets the number of frames that a batch skipped, once that is stored."""
        self.run_id = run_id
        self._context = context
        self._on_missing = on_missing
        self._consequences = Consequences(run_id, context)
        self._loader = StreamLoader(run_id, context, self._consequences)
        self._streams: dict[StreamKey, Stream] = {}
        self._arrived: dict[StreamKey, FrameQueue] = {}
        self.num_bytes = 0
        """About how much memory its streams take."""

    @property
    def is_behind(self) -> bool:
        """Whether frames can be judged now; frames behind a gap count only once it is skipped."""
        return bool(self._arrived) or any(stream.is_behind for stream in self._streams.values())

    @property
    def num_waiting(self) -> int:
        """Number of frames that wait to be judged."""
        streams = self._streams.values()
        queues = [*(stream.queue for stream in streams), *self._arrived.values()]
        num_passed_over = sum(len(stream.passed_over) for stream in streams)
        return num_passed_over + sum(queue.num_waiting for queue in queues)

    @property
    def wait_left_s(self) -> float | None:
        """Seconds until frames that wait for others are judged without them; None if none do."""
        now = self._context.clock.monotonic()
        left_s = [stream.wait_left_s(now) for stream in self._streams.values()]
        return min((one for one in left_s if one is not None), default=None)

    async def needs(self) -> Needs:
        """What it will take once it is loaded. Raises RunRemovedError."""
        return await self._loader.needs()

    def put(self, frame: CommittedFrame) -> None:
        key = StreamKey(frame.attempt, frame.rank)
        self._queue(key).put(frame)
        stream = self._streams.get(key)
        if stream is not None and frame.seq < stream.queue.next_seq:
            stream.passed_over.add(frame.seq)

    def note(self, key: StreamKey, newest_seq: int, passed_over: int | None = None) -> None:
        """Note that the frames of a stream up to this one are stored, and perhaps one that came
        after the watermark had passed it. A stream that is loaded later finds those itself."""
        self._queue(key).note(newest_seq)
        if key in self._streams and passed_over is not None:
            self._streams[key].passed_over.add(passed_over)

    async def step(self) -> bool:
        """Judge one batch of frames; returns whether there was one."""
        for key in self._turns():
            stream = await self._loaded(key)
            if stream.passed_over:
                await self._judge_passed_over(stream, min(stream.passed_over))
                return True
            if stream.queue.is_behind and await self._advance(stream):
                return True
        return False

    def _turns(self) -> list[StreamKey]:
        """The streams that are behind, in the order of their turns: rank 0 before the others,
        except for one that has waited until rank 0 had come as far: the rank whose loss broke is
        judged before those whose gradients it broke. Asked for each batch, and a job may have a
        thousand ranks: nothing here looks at a frame for each of them."""
        behind = {key: one for key, one in self._streams.items() if one.is_behind}
        held = {key: one.held for key, one in behind.items() if one.held is not None}
        sound = {attempt: self._sound_until(attempt) for attempt in {key.attempt for key in held}}
        now = self._context.clock.monotonic()
        is_next = {key for key, one in held.items() if one.has_turn(sound[key.attempt], now)}
        return sorted(
            behind.keys() | self._arrived.keys(),
            key=lambda key: (key.attempt, key not in is_next, key.rank),
        )

    def _sound_until(self, attempt: int) -> Place:
        """How far rank 0 is known, before anything broke that is not judged yet."""
        first = self._streams.get(StreamKey(attempt, 0))
        if first is None:
            return START
        return sound_until(first.judged_until, first.queue.take(MAX_HELD))

    async def _loaded(self, key: StreamKey) -> Stream:
        """The stream, loaded when its turn comes, because it needs to know how the attempt before
        it ended."""
        if key in self._arrived:
            self._streams[key] = await self._loader.load(key, self._arrived[key], self._streams)
            del self._arrived[key]
            self._weigh(self._streams[key])
        return self._streams[key]

    def _weigh(self, stream: Stream) -> None:
        num_bytes = stream.judge.num_bytes + len(stream.evaluation.state)
        self.num_bytes += num_bytes - stream.num_bytes
        stream.num_bytes = num_bytes

    async def save(self) -> None:
        """Store every evaluator's state, so that the next start need not judge anything again."""
        for stream in self._streams.values():
            if stream.is_stored and stream.evaluation.state_seq < stream.evaluation.evaluated_seq:
                await self._store_state(stream)

    def _queue(self, key: StreamKey) -> FrameQueue:
        """The queue for a stream's frames; a separate one until the stream is loaded."""
        if key in self._streams:
            return self._streams[key].queue
        if key not in self._arrived:
            self._arrived[key] = FrameQueue(next_seq=1, has_room=self._context.frame_budget.keep)
        return self._arrived[key]

    async def _advance(self, stream: Stream) -> bool:
        """Judge the next frames of a stream; returns whether there were any."""
        newest_seq = stream.queue.newest_seq  # as of now: others may come while this reads
        if frames := stream.queue.take(BATCH_FRAMES):
            return await self._judge_due(stream, frames)
        async with self._loader.frames(stream.key, stream.project, stream.queue.next_seq) as frames:
            if frames:
                return await self._judge_due(stream, frames)
        await self._or_lose(stream, newest_seq, self._pass_removed(stream, newest_seq))
        return False

    async def _judge_due(self, stream: Stream, frames: list[CommittedFrame]) -> bool:
        """Judge the frames, given in order, that need not wait any longer; returns whether there
        were any."""
        now = self._context.clock.monotonic()
        frames = stream.in_line(frames, now)
        if stream.key.rank:
            frames = stream.in_turn(frames, lambda: self._sound_until(stream.key.attempt), now)
        if frames:
            await self._or_lose(stream, frames[-1].seq, self._judge(stream, frames))
        return bool(frames)

    async def _judge_passed_over(self, stream: Stream, seq: int) -> None:
        """Judge a frame that came after the watermark had passed it, or count it as judged if it
        cannot be read."""
        async with self._loader.frames(stream.key, stream.project, seq, seq) as frames:
            if frames:
                await self._or_lose(stream, seq, self._judge(stream, frames))
                return

        async def drop(connection: AsyncConnection) -> list[News]:
            await progress_queries.drop_passed_over(connection, stream.evaluation, seq)
            return []

        await self._or_lose(stream, seq, self._store_state(stream, drop))
        stream.passed_over.discard(seq)

    async def _pass_removed(self, stream: Stream, last_seq: int) -> None:
        """Count frames as judged that are no longer stored, up to this one: retention removed them,
        or none of them can be read. They would be waited for at each start, and by whoever looks at
        the run. Nothing is stored of a run that was itself removed."""

        skipped = range(stream.evaluation.evaluated_seq + 1, last_seq + 1)
        still_came: list[int] = []

        async def look_again(connection: AsyncConnection) -> list[News]:
            await self._consequences.addressee(connection)
            still_came.extend(
                await progress_queries.note_passed_over_among(
                    connection, stream.evaluation, skipped
                )
            )
            return []

        await self._store_state(stream, look_again, upto_seq=last_seq)
        stream.passed_over.update(still_came)
        stream.queue.done(last_seq)
        # The next frame that is missing, or row that broke, is another one.
        stream.gap_since = stream.held = None

    async def _or_lose(self, stream: Stream, last_seq: int, doing: Awaitable[None]) -> None:
        """Do what moves a stream up to a frame. If that fails, the evaluator may be ahead of the
        database and is rebuilt from there."""
        try:
            await doing
        except BaseException as error:
            stream.queue.note(last_seq)
            lost = tuple(self._streams) if isinstance(error, JudgeLostError) else (stream.key,)
            for key in lost:
                self._build_again(key)
            raise

    def _build_again(self, key: StreamKey) -> None:
        stream = self._streams.pop(key)
        self.num_bytes -= stream.num_bytes
        self.note(key, stream.queue.newest_seq)

    async def _judge(self, stream: Stream, frames: Sequence[CommittedFrame]) -> None:
        await self._follow_rules(stream)
        judge = stream.judge
        transitions = await self._context.outcomes.find(
            self.run_id,
            judge.rule_set.rules,
            await judge.observe(frames),
            rank=stream.key.rank,
            segment=frames[0].frame.segment,
        )
        moved = await self._move_of(stream, frames)
        still_came: list[int] = []
        lr_scale = self._consequences.lr_scale

        async def work(connection: AsyncConnection) -> _BatchOutcome | None:
            still_came.extend(await self._store_move(connection, stream, moved, frames[0]))
            if not transitions and await self._is_quiet(connection, stream):
                return None
            addressee = await self._consequences.addressee(connection)
            live = stream.key.attempt == addressee.attempt and not frames[0].late
            source = self._consequences.source(
                stream.key, addressee, judge.rule_set, segment=frames[0].frame.segment, live=live
            )
            ended: list[News] = []
            if live and not stream.has_begun:
                ended = await self._consequences.end_older(connection, stream.key)
            recorded = await self._consequences.record(
                connection, source, frames, transitions, lr_scale=lr_scale
            )
            posted = await posting(connection, self.run_id) if recorded.ordered else None
            return _BatchOutcome([*ended, *recorded.news], live, recorded.is_explained, posted)

        outcome = await self._context.database.write(work, of=self.run_id)
        is_saved = moved.after.state is not stream.evaluation.state
        stream.unsaved_bytes = 0 if is_saved else stream.unsaved_bytes + _num_bytes(frames)
        stream.evaluation, stream.is_stored = moved.after, True
        self._weigh(stream)
        stream.queue.done(moved.after.evaluated_seq)
        stream.passed_over.discard(frames[0].seq)
        stream.passed_over.update(still_came)
        stream.judged_until = max(stream.judged_until, *map(end_of, frames))
        self._on_missing(len(moved.skipped))
        if outcome is None:  # readers are not woken, or each frame would make them look
            return
        stream.has_begun |= outcome.is_live
        stream.is_explained = outcome.is_explained
        if outcome.posted is not None:
            self._context.delivery.post(self.run_id, outcome.posted)
        self._context.on_news(outcome.news)

    async def _move_of(self, stream: Stream, frames: Sequence[CommittedFrame]) -> _Move:
        before = stream.evaluation
        watermark = max(before.evaluated_seq, frames[-1].seq)
        skipped = range(before.evaluated_seq + 1, frames[0].seq)
        came_late = frames[0].seq <= before.evaluated_seq
        after = replace(before, evaluated_seq=watermark)
        # A skipped frame may still come. A restart, which judges again what was judged since the
        # saved state, must not find it there.
        if stream.state_is_due or len(skipped) or came_late:
            after = replace(after, state_seq=watermark, state=await stream.judge.state())
        return _Move(after, skipped, came_late)

    async def _store_move(
        self, connection: AsyncConnection, stream: Stream, moved: _Move, first: CommittedFrame
    ) -> list[int]:
        """Store a stream's new place; returns which of the skipped frames have come meanwhile."""
        await self._store(connection, stream, moved.after)
        if moved.came_late and not await progress_queries.drop_passed_over(
            connection, moved.after, first.seq
        ):
            raise StreamMovedError(f"run {self.run_id}: frame {first.seq} was judged already")
        if not len(moved.skipped):
            return []
        await self._consequences.note_gap(connection, first, moved.skipped)
        return await progress_queries.note_passed_over_among(connection, moved.after, moved.skipped)

    async def _is_quiet(self, connection: AsyncConnection, stream: Stream) -> bool:
        """Whether frames without transitions leave nothing to do: the common case, which must cost
        no more than its watermark."""
        if not stream.is_stored or not stream.has_begun or stream.is_explained:
            return False
        return stream.key.rank != 0 or not await queries.list_watched(connection, self.run_id)

    async def _follow_rules(self, stream: Stream) -> None:
        """Take over changed rules, at a boundary that a restart will find again."""
        rule_set = await self._context.rules.in_force(stream.project)
        if rule_set.hash == stream.judge.rule_set.hash:
            return
        kept = set(rule_set.hashes_since(stream.judge.rule_set).values())
        names = {rule.name for rule in rule_set.rules if rule.hash in kept}
        stream.judge = await stream.judge.with_rules(rule_set)

        async def end_orphans(connection: AsyncConnection) -> list[News]:
            orphans = [
                alert
                for alert in await queries.list_open(connection, self.run_id)
                if StreamKey(alert.attempt, alert.rank) == stream.key
                and alert.rule_hash
                and alert.rule not in names
            ]
            return await self._context.end_alerts(
                connection, orphans, Resolution.RULE_CHANGED, "the rule was changed or removed"
            )

        await self._store_state(stream, end_orphans)
        log.info("run %s: judged by other rules from here on", self.run_id)

    async def _store_state(
        self,
        stream: Stream,
        also: Callable[[AsyncConnection], Awaitable[list[News]]] | None = None,
        *,
        upto_seq: int | None = None,
    ) -> None:
        """Store the evaluator's state as that after a frame: by default the last one judged. `also`
        is done in the same transaction, and returns its news."""
        state = await stream.judge.state()
        evaluated_seq = stream.evaluation.evaluated_seq if upto_seq is None else upto_seq
        after = replace(
            stream.evaluation,
            evaluated_seq=evaluated_seq,
            state_seq=evaluated_seq,
            state=state,
            rule_set=stream.judge.rule_set.hash,
        )

        async def work(connection: AsyncConnection) -> list[News]:
            await self._store(connection, stream, after)
            return [] if also is None else await also(connection)

        news = await self._context.database.write(work, of=self.run_id)
        stream.evaluation, stream.is_stored = after, True
        if news:
            self._context.on_news(news)

    async def _store(self, connection: AsyncConnection, stream: Stream, after: Evaluation) -> None:
        await self._context.ownership.check(connection, self.run_id)
        if not stream.is_stored or after.rule_set != stream.evaluation.rule_set:
            rule_set = stream.judge.rule_set
            await progress_queries.store_rule_set(connection, rule_set.hash, rule_set.documents)
        if not stream.is_stored:
            await progress_queries.insert_evaluation(connection, after)
        elif not await progress_queries.advance_evaluation(connection, stream.evaluation, after):
            await self._consequences.addressee(connection)  # raises if the run was removed
            raise StreamMovedError(f"run {self.run_id}: frames were judged by somebody else")


def _num_bytes(frames: Sequence[CommittedFrame]) -> int:
    return sum(frame.frame.stats.nbytes + frame.frame.metrics.nbytes for frame in frames)
