"""Delivers commands to the ranks that must obey them: with every reply, and by long poll."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.commands import Command, CommandState
from runwatch.vocabulary import CommandId, RunId
from runwatch_server.clock import Clock
from runwatch_server.commands import queries, receipt_queries
from runwatch_server.commands.changes import SERVICE, enter
from runwatch_server.commands.checks import existing_command, find_addressee
from runwatch_server.commands.mailbox import Mailbox, Posted
from runwatch_server.commands.records import CommandRecord
from runwatch_server.commands.signing import Signer
from runwatch_server.db import Database
from runwatch_server.errors import OverloadedError, ServiceError
from runwatch_server.per_run_tasks import PerRunTasks

log = logging.getLogger(__name__)

MAX_WAIT_S: Final = 30.0
"""Longest wait of a long poll: below the 60 s after which proxies give up."""


class Delivery:
    """The pending commands, as the database holds them, and the long polls that wait for them."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        signer: Signer,
        on_change: Callable[[], None] = lambda: None,
        announce: Callable[[RunId], None] = lambda _: None,
    ) -> None:
        """`on_change` is called with each changed command, `announce` with its run."""
        self._database = database
        self._clock = clock
        self._signer = signer
        self._on_change = on_change
        self._announce = announce
        self._mailbox = Mailbox()
        self._lookups = PerRunTasks("looking up its commands")
        self._notes: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Posts what was pending when the service stopped."""
        async with self._database.read() as connection:
            under_way = await queries.mark_under_way(connection)
        for run_id in self._mailbox.changed_runs(under_way):
            await self._lookups.do(run_id, partial(self.refresh, run_id))

    def release(self, run_id: RunId) -> None:
        """Answers the long polls of a run whose attempt has ended."""
        self._mailbox.release(run_id)

    def forget(self, run_id: RunId) -> None:
        """Drops a removed run's commands: they are not for a new run that comes under its id."""
        self.release(run_id)
        if self._mailbox.holds(run_id):
            self._mailbox.post(run_id, ())
            self._note(self._post_anew(run_id))

    async def _post_anew(self, run_id: RunId) -> None:
        try:
            await self._post_here(run_id)
        except ServiceError as error:  # the database is away
            log.warning("run %s: its commands could not be looked up: %s", run_id, error)

    def close(self) -> None:
        """Answers every long poll and accepts no more: the service is about to stop."""
        self._mailbox.close()

    async def stop(self) -> None:
        """Waits for the notes that are still being written."""
        if self._notes:
            await asyncio.gather(*self._notes, return_exceptions=True)

    def post(self, run_id: RunId, posted: Sequence[Posted]) -> None:
        """Posts what a write found at its end, as soon as it is committed."""
        self._mailbox.post(run_id, posted)
        self._on_change()
        self._announce(run_id)

    async def post_changed(self, run_ids: frozenset[RunId] | None) -> None:
        """Posts what other replicas have changed: for these runs, or for all if None."""
        async with self._database.read() as connection:
            under_way = await queries.mark_under_way(connection)
        for run_id in self._mailbox.changed_runs(under_way):
            if run_ids is None or run_id in run_ids:
                await self._lookups.do(run_id, partial(self._post_here, run_id))

    async def _post_here(self, run_id: RunId) -> None:
        self._mailbox.post(run_id, await self._read(run_id))

    async def refresh(self, run_id: RunId) -> None:
        """Posts what the database holds.

        Read on the writing connection, which sees changes one after another: an older view of a
        reader could otherwise replace a newer one.
        """
        self.post(run_id, await self._read(run_id))

    async def _read(self, run_id: RunId) -> list[Posted]:
        return await self._database.write(lambda connection: posting(connection, run_id), of=run_id)

    async def pending(self, run_id: RunId, attempt: int, rank: int) -> tuple[Command, ...]:
        """The commands that a rank must be given with any reply."""
        told = self._mailbox.take(run_id, attempt, rank, self._clock.wall())
        if told:
            self._note_delivered(self._mailbox.take_first_deliveries(run_id, told))
        return told

    async def next(
        self, run_id: RunId, attempt: int, rank: int, wait_s: float
    ) -> tuple[Command, ...]:
        """The same, waiting up to `wait_s` until there is one."""
        deadline = self._clock.monotonic() + min(wait_s, MAX_WAIT_S)
        while True:
            told = await self.pending(run_id, attempt, rank)
            left_s = deadline - self._clock.monotonic()
            if told or left_s <= 0 or not await self._mailbox.wait(run_id, left_s):
                return told

    def _note_delivered(self, records: Sequence[CommandRecord]) -> None:
        """Notes in the background that a command was delivered: the reply need not wait for it."""
        for record in records:
            self._note(self._deliver(record.run_id, record.id))

    def _note(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    async def _deliver(self, run_id: RunId, command_id: CommandId) -> None:
        async def work(connection: AsyncConnection) -> CommandRecord:
            record = await existing_command(connection, command_id)
            if record.state is not CommandState.QUEUED:
                return record
            addressee = await find_addressee(connection, record.run_id)
            return await enter(
                connection,
                record,
                addressee,
                CommandState.DELIVERED,
                at=self._clock.wall(),
                actor=SERVICE,
                signer=self._signer,
            )

        try:
            await self._database.write(work, of=run_id)
        except OverloadedError as error:
            log.warning("could not note the delivery of command %s: %s", command_id, error)
        except Exception:  # only the note failed; delivery goes on with the next reply
            log.exception("could not note the delivery of command %s", command_id)


async def posting(connection: AsyncConnection, run_id: RunId) -> list[Posted]:
    """The pending commands of a run, to be posted once the calling transaction is committed."""
    return [
        Posted(record, await receipt_queries.list_answers(connection, record))
        for record in await queries.list_under_way(connection, run_id)
    ]
