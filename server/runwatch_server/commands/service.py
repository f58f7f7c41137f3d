"""Orders, approves, cancels and settles commands."""

import logging
from collections.abc import Sequence
from functools import partial

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.commands import AnyAction, CommandState, Receipt
from runwatch.frames import Scalar
from runwatch.vocabulary import CommandId, RunId
from runwatch_server.clock import Clock
from runwatch_server.commands import event_queries, lifecycle, queries, receipt_queries
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
from runwatch_server.commands.delivery import Delivery
from runwatch_server.commands.ids import OrderedIds
from runwatch_server.commands.records import CommandRecord
from runwatch_server.commands.signing import Signer
from runwatch_server.db import Database, Work
from runwatch_server.errors import ConflictError
from runwatch_server.per_run_tasks import PerRunTasks
from runwatch_server.runs.checks import check_rank, unknown_attempt
from runwatch_server.runs.queries import count_by_signing_key, find_attempt

log = logging.getLogger(__name__)


class Commands:
    """Every operation on commands, from people, rules or trainers."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        ids: OrderedIds,
        *,
        signer: Signer,
        delivery: Delivery,
    ) -> None:
        self._signer = signer
        self._delivery = delivery
        self._database = database
        self._clock = clock
        self._ids = ids
        self._expiries = PerRunTasks("the expiry of its commands")

    async def log_foreign_keys(self) -> None:
        """Logs how many runs cannot be commanded from here, and why."""
        for key, num_runs in (await self.foreign_keys()).items():
            log.error(
                "%d runs cannot be commanded: their attempts were opened under the signing key "
                "%s, which is not in secret_file; give all replicas the same file with all keys",
                num_runs,
                key,
            )

    async def foreign_keys(self) -> dict[str, int]:
        """Fingerprints of signing keys that live attempts were opened under and that this service
        does not have, with the number of runs under each."""
        async with self._database.read() as connection:
            num_runs = await count_by_signing_key(connection)
        return {key: num for key, num in sorted(num_runs.items()) if not self._signer.holds(key)}

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
        """Orders a person's command. Raises NotFoundError, ConflictError, UnprocessableError."""

        async def work(connection: AsyncConnection) -> CommandRecord:
            if idempotency_key is not None:  # first: the run may have obeyed and ended already
                known = await queries.find_by_idempotency_key(connection, run_id, idempotency_key)
                if known is not None:
                    return same_order(known, action)
            addressee = await commandable(connection, run_id)
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
        """Approves a proposal. Raises NotFoundError, ConflictError."""

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
        """Cancels a command. Raises NotFoundError, and ConflictError if it is too late."""

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

    async def receive(self, command_id: CommandId, receipt: Receipt, *, by: str) -> CommandRecord:
        """Stores a rank's answer; the same one again changes nothing. `by` is the key that sent it,
        for the audit.

        Raises NotFoundError, ConflictError, UnprocessableError.
        """
        check_receipt(command_id, receipt)

        async def work(connection: AsyncConnection) -> CommandRecord:
            record = await existing_command(connection, command_id)
            if receipt.attempt != record.attempt:
                raise ConflictError(
                    "foreign_attempt",
                    f"The command was for attempt {record.attempt}, not {receipt.attempt}.",
                )
            await check_was_ordered(connection, record)
            attempt = await find_attempt(connection, record.run_id, record.attempt)
            if attempt is None:
                raise unknown_attempt(record.attempt)
            check_rank(receipt.rank, attempt)
            return await self._settle(
                connection, record, receipt, num_ranks=attempt.world_size, by=by
            )

        return await self._changed(await self._write(command_id, work))

    async def expire_due(self) -> None:
        """Ends commands that have expired, and those whose attempt is over."""
        now = self._clock.wall()
        async with self._database.read() as connection:
            under_way = await queries.mark_under_way(connection)
            due = [mark for mark in under_way if await why_over(connection, mark, now) is not None]
        for run_id in {mark.run_id for mark in due}:
            ids = [mark.id for mark in due if mark.run_id == run_id]
            await self._expiries.do(run_id, partial(self._expire_all, run_id, ids))

    async def _expire_all(self, run_id: RunId, command_ids: Sequence[CommandId]) -> None:
        for command_id in command_ids:
            await self._database.write(partial(self._expire, command_id=command_id), of=run_id)
        await self._delivery.refresh(run_id)

    async def _expire(self, connection: AsyncConnection, command_id: CommandId) -> None:
        record = await queries.find_command(connection, command_id)
        if record is None or record.state.is_ended:
            return
        addressee = await queries.find_addressee(connection, record.run_id)
        now = self._clock.wall()
        why = await why_over(connection, record, now)
        if why is None or addressee is None:  # None: the run is being removed
            return
        detail: dict[str, Scalar] = {"reason": why}
        await enter(
            connection,
            record,
            addressee,
            CommandState.EXPIRED,
            at=now,
            actor=SERVICE,
            signer=self._signer,
            detail=detail,
        )

    async def _settle(
        self,
        connection: AsyncConnection,
        record: CommandRecord,
        receipt: Receipt,
        *,
        num_ranks: int,
        by: str,
    ) -> CommandRecord:
        """`num_ranks` is that of the commanded attempt, which may be over by now."""
        answers = await receipt_queries.list_answers(connection, record)
        if lifecycle.is_final_answer(answers.get(receipt.rank)):
            return record
        now = self._clock.wall()
        await receipt_queries.store_receipt(connection, record, receipt, at=now)
        told = {"state": receipt.state, "step": receipt.step, **receipt.detail, "by": by}
        await event_queries.append_event(
            connection, record, "receipt", at=now, actor=TRAINER, rank=receipt.rank, detail=told
        )
        answers[receipt.rank] = receipt.state
        state = lifecycle.settle(record.state, answers, num_ranks)
        if state is record.state:
            return record
        return await enter(
            connection,
            record,
            await find_addressee(connection, record.run_id),
            state,
            at=now,
            actor=TRAINER,
            by=by,
            signer=self._signer,
            step=receipt.step,
            detail=receipt.detail,
        )

    async def _write(self, command_id: CommandId, work: Work[CommandRecord]) -> CommandRecord:
        """Changes a command, in order with all other writes about its run."""
        async with self._database.read() as connection:
            record = await existing_command(connection, command_id)
        return await self._database.write(work, of=record.run_id)

    async def _changed(self, record: CommandRecord) -> CommandRecord:
        log.info(
            "command %s (%s) of run %s: %s", record.id, record.kind, record.run_id, record.state
        )
        await self._delivery.refresh(record.run_id)
        return record
