"""Loads the streams of a run whose frames are to be judged, as they were left, from the
database."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.rules.background import known_from
from runwatch.rules.loading import state_bytes
from runwatch.vocabulary import RunId
from runwatch_server.alerts.context import AlertingContext
from runwatch_server.alerts.evaluation import progress_queries
from runwatch_server.alerts.evaluation.consequences import Consequences
from runwatch_server.alerts.evaluation.state_budget import Needs
from runwatch_server.alerts.evaluation.stored_frames import next_batch, read_batch
from runwatch_server.alerts.evaluation.stream import FrameQueue, Stream, StreamKey
from runwatch_server.alerts.judging import Judge
from runwatch_server.alerts.records import Evaluation
from runwatch_server.rules.pack import RuleSet
from runwatch_server.runs.queries import find_run
from runwatch_server.telemetry.committed_frames import CommittedFrame

BATCH_FRAMES: Final = 64
"""Number of frames that are read and judged at a time."""
_OF_MOST: Final = 2
"""Windows take half of what is expected of them at most, while all layers share their steps."""


class StreamLoader:
    """Loads streams for one run. No connection is held while a judge waits for its turn: a service
    that starts with a thousand runs would otherwise have none left for anything else."""

    def __init__(self, run_id: RunId, context: AlertingContext, consequences: Consequences) -> None:
        self._run_id = run_id
        self._context = context
        self._consequences = consequences

    async def needs(self) -> Needs:
        """What the run will take once it is loaded, by its rules and its layers. Raises
        RunRemovedError."""
        async with self._context.database.read() as connection:
            project = (await self._consequences.addressee(connection)).project
        rule_set = await self._context.rules.in_force(project)
        num_layers = await self._context.layouts.num_layers(self._run_id)
        return Needs(project, state_bytes(rule_set.rules, num_layers) // _OF_MOST)

    async def load(
        self, key: StreamKey, arrived: FrameQueue, others: Mapping[StreamKey, Stream]
    ) -> Stream:
        """A stream with its saved state, and the frames since then judged silently; without a saved
        state, a new stream. `others` are the run's streams that are already loaded."""
        async with self._context.database.read() as connection:
            project = (await self._consequences.addressee(connection)).project
            stored = await self._find(connection, key)
            passed_over = await progress_queries.find_passed_over(
                connection, self._run_id, key.attempt, key.rank
            )
        if stored is None:
            return await self._fresh(key, arrived, project, others)
        judge = await self._as_left(stored, project)
        arrived.done(stored.evaluated_seq)
        return Stream(stored, True, judge, arrived, project, passed_over=passed_over)

    async def _find(self, connection: AsyncConnection, key: StreamKey) -> Evaluation | None:
        return await progress_queries.find_evaluation(
            connection, self._run_id, key.attempt, key.rank
        )

    async def _as_left(self, stored: Evaluation, project: str) -> Judge:
        async with self._context.database.read() as connection:
            documents = await progress_queries.find_rule_set(connection, stored.rule_set)
        rule_set = RuleSet.of_documents(documents)
        judge = await self._context.judging.open(
            self._run_id, stored.rank, rule_set, project=project, state=stored.state
        )
        key = StreamKey(stored.attempt, stored.rank)
        first_seq, last_seq = stored.state_seq + 1, stored.evaluated_seq
        while first_seq <= last_seq:
            async with self.frames(key, project, first_seq, last_seq) as frames:
                if frames:
                    await judge.observe(frames)
                first_seq = frames[-1].seq + 1 if frames else last_seq + 1
        return judge

    async def _fresh(
        self,
        key: StreamKey,
        arrived: FrameQueue,
        project: str,
        others: Mapping[StreamKey, Stream],
    ) -> Stream:
        rule_set = await self._context.rules.in_force(project)
        async with self._context.database.read() as connection:
            run = await find_run(connection, self._run_id)
        known = {} if run is None else known_from(run.config)
        known |= await self._end_of_last(key, project, others)
        judge = await self._context.judging.open(
            self._run_id, key.rank, rule_set, project=project, known=known
        )
        evaluation = Evaluation(
            run_id=self._run_id,
            attempt=key.attempt,
            rank=key.rank,
            evaluated_seq=0,
            state_seq=0,
            state=await judge.state(),  # includes what is known, for a restart
            rule_set=rule_set.hash,
        )
        return Stream(evaluation, False, judge, arrived, project)

    async def _end_of_last(
        self, key: StreamKey, project: str, others: Mapping[StreamKey, Stream]
    ) -> dict[str, float]:
        """What is known of the newest earlier attempt that sent anything, as far as it was
        judged."""
        async with self._context.database.read() as connection:
            stored = await progress_queries.find_last_evaluation(
                connection, self._run_id, key.rank, before=key.attempt
            )
        if stored is None:
            return {}
        before = StreamKey(stored.attempt, stored.rank)
        judge = others[before].judge if before in others else await self._as_left(stored, project)
        return await judge.known_to_next()

    @asynccontextmanager
    async def frames(
        self, key: StreamKey, project: str, first_seq: int, last_seq: int | None = None
    ) -> AsyncGenerator[list[CommittedFrame]]:
        """The next stored frames of a stream that can be read, unpacked only as long as this is
        entered; none if there are no more. Waits until there is room for them."""
        database, packs = self._context.database, self._context.packs
        while True:
            async with database.read() as connection:
                batch = await next_batch(
                    connection,
                    self._run_id,
                    key,
                    first_seq=first_seq,
                    last_seq=last_seq,
                    limit=BATCH_FRAMES,
                )
            if batch is None:
                yield []
                return
            async with self._context.frame_budget.room(project, batch.num_bytes):
                if frames := await read_batch(database, packs, batch):
                    yield frames
                    return
            first_seq = batch.last_seq + 1
