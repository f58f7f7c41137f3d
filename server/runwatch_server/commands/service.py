"""Ordering, approving, delivering and settling commands."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.commands import AnyAction, Command, CommandState, Receipt
from runwatch.frames import Scalar
from runwatch.vocabulary import CommandId, RunId
from runwatch_server.clock import Clock
from runwatch_server.commands import lifecycle, queries
from runwatch_server.commands.changes import COMMAND_TTL_S, SERVICE, TRAINER, enter, put
from runwatch_server.commands.checks import (
    check_receipt,
    check_was_ordered,
    commandable,
    existing_command,
    find_addressee,
    same_order,
    why_over,
)
from runwatch_server.commands.ids import OrderedIds
from runwatch_server.commands.mailbox import Mailbox, Posted
from runwatch_server.commands.records import CommandRecord
from runwatch_server.commands.signing import Signer
from runwatch_server.db import Database, Work
from runwatch_server.errors import ConflictError
from runwatch_server.runs.queries import count_by_signing_key

log = logging.getLogger(__name__)

MAX_WAIT_S: Final = 30.0
"""Of a long poll: below the 60 s after which proxies give up."""


class Commands:
    """All that happens to commands, whoever gives them."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        ids: OrderedIds,
        *,
        signer: Signer,
        on_change: Callable[[], None] = lambda: None,
        announce: Callable[[RunId], None] = lambda _: None,
    ) -> None:
        self._announce = announce
        self._signer = signer
        self._database = database
        self._clock = clock
        self._ids = ids
        self._on_change = on_change
        self._mailbox = Mailbox()
        self._notes: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Post what was under way when the service stopped."""
        async with self._database.read() as connection:
            under_way = await queries.list_under_way(connection)
        for run_id in {record.run_id for record in under_way}:
            await self.refresh(run_id)
        for key, num_runs in (await self.foreign_keys()).items():
            log.error(
                "%d runs cannot be commanded: their attempts were opened under the signing key "
                "%s, which is not in secret_file; give all replicas the same file, old keys too",
                num_runs,
                key,
            )

    async def foreign_keys(self) -> dict[str, int]:
        """Signing keys that attempts were opened under and that are not here, with the number of
        runs that go on under each."""
        async with self._database.read() as connection:
            num_runs = await count_by_signing_key(connection)
        return {key: num for key, num in sorted(num_runs.items()) if not self._signer.holds(key)}

    def release(self, run_id: RunId) -> None:
        """Answer the long polls of a run whose attempt has ended."""
        self._mailbox.release(run_id)

    def close(self) -> None:
        """Answer every long poll, and hold none any more: the service is about to stop."""
        self._mailbox.close()

    async def stop(self) -> None:
        """Wait for what is being noted."""
        if self._notes:
            await asyncio.gather(*self._notes, return_exceptions=True)

    def post(self, run_id: RunId, posted: Sequence[Posted]) -> None:
        """Post what a write found at its end, as soon as it is committed."""
        self._mailbox.post(run_id, posted)
        self._on_change()
        self._announce(run_id)

    async def look_again(self, run_ids: frozenset[RunId] | None) -> None:
        """Post what other replicas have changed: of these runs, or wherever it was."""
        async with self._database.read() as connection:
            under_way = await queries.list_under_way(connection)
        for run_id in self._mailbox.changed_runs(under_way):
            if run_ids is None or run_id in run_ids:
                self._mailbox.post(run_id, await self._read(run_id))

    async def refresh(self, run_id: RunId) -> None:
        """Post what the database holds. Asked on the writing connection, which sees changes one
        after another: a reader's older view could be posted over a newer one."""
        self.post(run_id, await self._read(run_id))

    async def _read(self, run_id: RunId) -> list[Posted]:
        return await self._database.write(lambda connection: posting(connection, run_id), of=run_id)

    async def pending(self, run_id: RunId, attempt: int, rank: int) -> tuple[Command, ...]:
        """What a rank must be told with any reply."""
        told = self._mailbox.take(run_id, attempt, rank, self._clock.wall())
        if told:
            self._note_delivered(self._mailbox.tell_first_time(run_id, told))
        return told

    async def next(
        self, run_id: RunId, attempt: int, rank: int, wait_s: float
    ) -> tuple[Command, ...]:
        """The same, waiting for something to say."""
        deadline = self._clock.monotonic() + min(wait_s, MAX_WAIT_S)
        while True:
            told = await self.pending(run_id, attempt, rank)
            left_s = deadline - self._clock.monotonic()
            if told or left_s <= 0 or not await self._mailbox.wait(run_id, left_s):
                return told

    async def order(
        self,
        run_id: RunId,
        action: AnyAction,
        *,
        actor: str,
        reason: str = "",
        ttl_s: float = COMMAND_TTL_S,
        idempotency_key: str | None = None,
    ) -> CommandRecord:
        """A person's command. Raises NotFoundError, ConflictError, UnprocessableError."""

        async def work(connection: AsyncConnection) -> CommandRecord:
            addressee = await commandable(connection, run_id)
            if idempotency_key is not None:
                known = await queries.find_by_idempotency_key(connection, run_id, idempotency_key)
                if known is not None:
                    return same_order(known, action)
            now = self._clock.wall()
            record = CommandRecord(
                run_id=run_id,
                id=CommandId(self._ids.new()),
                attempt=addressee.attempt,
                action=action,
                state=CommandState.QUEUED,
                reason=reason,
                requested_by=actor,
                created_at=now,
                expires_at=now + ttl_s,
                idempotency_key=idempotency_key,
            )
            await put(connection, record, addressee, actor=actor, signer=self._signer)
            return record

        return await self._changed(await self._database.write(work, of=run_id))

    async def approve(self, command_id: CommandId, *, actor: str) -> CommandRecord:
        """Let a proposal go. Raises NotFoundError, ConflictError."""

        async def work(connection: AsyncConnection) -> CommandRecord:
            record = await existing_command(connection, command_id)
            addressee = await commandable(connection, record.run_id)
            if not lifecycle.can_be_approved(record.state):
                raise ConflictError("not_a_proposal", f"The command is {record.state} already.")
            if record.attempt != addressee.attempt:
                raise ConflictError(
                    "stale_command",
                    f"It was proposed for attempt {record.attempt}; now {addressee.attempt} runs.",
                )
            now = self._clock.wall()
            if not now < record.expires_at:
                raise ConflictError("expired_command", "The proposal has expired.")
            return await enter(
                connection,
                record,
                addressee,
                CommandState.QUEUED,
                at=now,
                actor=actor,
                signer=self._signer,
            )

        return await self._changed(await self._write(command_id, work))

    async def cancel(self, command_id: CommandId, *, actor: str) -> CommandRecord:
        """Withdraw a command. Raises NotFoundError, and ConflictError where it is too late."""

        async def work(connection: AsyncConnection) -> CommandRecord:
            record = await existing_command(connection, command_id)
            addressee = await find_addressee(connection, record.run_id)
            if record.state is CommandState.CANCELLED:
                return record
            if not lifecycle.can_be_cancelled(record.state):
                raise ConflictError("too_late", f"The command is {record.state} already.")
            return await enter(
                connection,
                record,
                addressee,
                CommandState.CANCELLED,
                at=self._clock.wall(),
                actor=actor,
                signer=self._signer,
            )

        return await self._changed(await self._write(command_id, work))

    async def receive(self, command_id: CommandId, receipt: Receipt) -> CommandRecord:
        """A rank's answer; the same one again changes nothing. Raises NotFoundError, ConflictError,
        UnprocessableError."""
        check_receipt(command_id, receipt)

        async def work(connection: AsyncConnection) -> CommandRecord:
            record = await existing_command(connection, command_id)
            if receipt.attempt != record.attempt:
                raise ConflictError(
                    "foreign_attempt",
                    f"The command was for attempt {record.attempt}, not {receipt.attempt}.",
                )
            await check_was_ordered(connection, record)
            return await self._settle(connection, record, receipt)

        return await self._changed(await self._write(command_id, work))

    async def expire_due(self) -> None:
        """End what is past its time, and what no living attempt will ever answer."""
        now = self._clock.wall()
        async with self._database.read() as connection:
            under_way = await queries.list_under_way(connection)
            due = [
                record
                for record in under_way
                if await why_over(connection, record, now) is not None
            ]
        if not due:
            return

        for stale in due:
            await self._write(stale.id, partial(self._expire, command_id=stale.id))
        for run_id in {record.run_id for record in due}:
            await self.refresh(run_id)

    async def _expire(self, connection: AsyncConnection, command_id: CommandId) -> CommandRecord:
        record = await existing_command(connection, command_id)
        now = self._clock.wall()
        why = await why_over(connection, record, now)
        if why is None or record.state.is_ended:
            return record
        detail: dict[str, Scalar] = {"reason": why}
        return await enter(
            connection,
            record,
            await find_addressee(connection, record.run_id),
            CommandState.EXPIRED,
            at=now,
            actor=SERVICE,
            signer=self._signer,
            detail=detail,
        )

    async def _settle(
        self, connection: AsyncConnection, record: CommandRecord, receipt: Receipt
    ) -> CommandRecord:
        answers = await queries.list_answers(connection, record)
        if lifecycle.is_final_answer(answers.get(receipt.rank)):
            return record
        now = self._clock.wall()
        await queries.store_receipt(connection, record, receipt, at=now)
        told: dict[str, object] = {"state": receipt.state, "step": receipt.step, **receipt.detail}
        await queries.append_event(
            connection, record, "receipt", at=now, actor=TRAINER, rank=receipt.rank, detail=told
        )
        addressee = await find_addressee(connection, record.run_id)
        answers[receipt.rank] = receipt.state
        state = lifecycle.settle(record.state, answers, addressee.num_ranks)
        if state is record.state:
            return record
        return await enter(
            connection,
            record,
            addressee,
            state,
            at=now,
            actor=TRAINER,
            signer=self._signer,
            step=receipt.step,
            detail=receipt.detail,
        )

    async def _write(self, command_id: CommandId, work: Work[CommandRecord]) -> CommandRecord:
        """Changes a command, in line with all else that is written about its run."""
        async with self._database.read() as connection:
            record = await existing_command(connection, command_id)
        return await self._database.write(work, of=record.run_id)

    async def _changed(self, record: CommandRecord) -> CommandRecord:
        log.info(
            "command %s (%s) of run %s: %s", record.id, record.kind, record.run_id, record.state
        )
        await self.refresh(record.run_id)
        return record

    def _note_delivered(self, records: Sequence[CommandRecord]) -> None:
        """Write down, beside the reply, that a command is on its way: the reply need not wait."""
        for record in records:
            task = asyncio.create_task(self._deliver(record.id))
            self._notes.add(task)
            task.add_done_callback(self._notes.discard)

    async def _deliver(self, command_id: CommandId) -> None:
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
            await self._write(command_id, work)
        except Exception:  # a note, not the delivery: that goes on with the next reply
            log.exception("could not note the delivery of command %s", command_id)


async def posting(connection: AsyncConnection, run_id: RunId) -> list[Posted]:
    """What is under way for a run, to be posted once the write that asks has been committed."""
    return [
        Posted(record, await queries.list_answers(connection, record))
        for record in await queries.list_under_way(connection, run_id)
    ]
