"""The loop that sends one receiver's deliveries. Every receiver has its own, so that one that is
down does not delay the others.

At least once: a delivery is marked after it was accepted. A service that is killed in between sends
it again, with the same dedup key.
"""

import asyncio
import logging
import math
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch_server.alerts.announcements import Announcer
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.errors import OverloadedError
from runwatch_server.notify import notice_queries, queries
from runwatch_server.notify.delivery_groups import (
    LONGEST_RETRY_S,
    DeliveryGroup,
    Verdict,
    group_deliveries,
    is_given_up,
    is_held_back,
    judge,
    retry_after_s,
)
from runwatch_server.notify.explaining import Explainer
from runwatch_server.notify.networks import ConnectionGuard
from runwatch_server.notify.receivers import Receiver, Receivers
from runwatch_server.notify.records import Delivery, DeliveryState, Kind
from runwatch_server.notify.refusals import TOO_LATE
from runwatch_server.notify.sending import ATTEMPT_S, Message, Sender, cut_after
from runwatch_server.notify.silences import Muting, list_silences
from runwatch_server.notify.texts import body_of, did_all_recover, title_of
from runwatch_server.per_run_tasks import PerRunTasks

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0
_MOST_AT_ONCE: Final = 200
_COUNT_EVERY_S: Final = 60.0
_HOLD_S: Final = {DeliveryState.WAITING: 5.0, DeliveryState.DELIVERED: 60.0}
"""Seconds after which a delivery that is held back is looked at again."""
_CLAIM_S: Final = 60.0
"""Seconds after which deliveries that a replica claimed without recording the outcome are due
again."""
_SETTLED_S: Final = 30 * 86400.0
"""Seconds for which deliveries that were sent or given up are kept."""


@dataclass(slots=True)
class DispatcherFigures:
    """Figures about one receiver's deliveries, for `/metrics`."""

    receiver: str
    last_success_at: float = 0.0
    """Unix seconds; 0 before the first success."""
    num_failed: int = 0
    num_given_up: int = 0
    counts: dict[str, int] = field(default_factory=dict[str, int])
    """Number of deliveries in each state."""


@dataclass(slots=True)
class _DueDeliveries:
    """The due deliveries, grouped by what is to be done with them."""

    by_verdict: dict[Verdict, list[Delivery]] = field(
        default_factory=lambda: {verdict: [] for verdict in Verdict}
    )
    groups: list[DeliveryGroup] = field(default_factory=list[DeliveryGroup])


class Dispatcher:
    """A background task: `run` until cancelled."""

    def __init__(
        self,
        receiver: Receiver,
        sender: Sender,
        config: Receivers,
        *,
        database: Database,
        clock: Clock,
        announcer: Announcer,
        threads: Executor,
        explainer: Explainer,
    ) -> None:
        self._explainer = explainer
        self._receiver = receiver
        self._sender = sender
        self._config = config
        self._database = database
        self._clock = clock
        self._announcer = announcer
        self._threads = threads
        self._tasks = PerRunTasks(f"telling receiver {receiver.name} of it")
        self._pruned_at = -math.inf
        self._under_way: asyncio.Future[str] | None = None
        """The last attempt, on its thread."""
        self._guard = ConnectionGuard(receiver.allowed)
        """Its connections."""
        self.figures = DispatcherFigures(receiver.name)

    async def run(self) -> None:
        while True:
            waiter = self._announcer.waiter()
            try:
                await self.deliver()
            except OverloadedError as error:  # the database is unavailable
                log.warning("receiver %s: %s; tried again", self._receiver.name, error)
            except Exception:  # notifying must go on after a failed round
                log.exception("receiver %s: a round failed; tried again", self._receiver.name)
            await self._announcer.wait(waiter, LOOK_EVERY_S)

    async def deliver(self) -> None:
        """Send what is due until one message fails; the rest waits for the next round."""
        due_now = await self._read_due()
        withheld = due_now.by_verdict[Verdict.WITHHOLD]
        if withheld:
            await self._mark(withheld, state=DeliveryState.WITHHELD.value)
        await self._hold(due_now.by_verdict[Verdict.HOLD])
        for group in due_now.groups:
            claimed = await self._claim(await self._explained(group))
            if claimed is not None and not await self._send(claimed):
                break
        if due_now.groups or withheld or self._count_is_due:
            await self._count()

    async def _read_due(self) -> _DueDeliveries:
        now = self._clock.wall()
        async with self._database.read() as connection:
            due = await queries.list_due(
                connection,
                self._receiver.name,
                now=now,
                horizon_s=max(self._receiver.repeat_s, LONGEST_RETRY_S) + 60.0,
                limit=_MOST_AT_ONCE,
            )
            if not due:
                return _DueDeliveries()
            ids = [one.alert_id for one in due]
            cases = await notice_queries.find_cases(connection, self._tasks, ids)
            projects = {case.alert.project for case in cases.values()}
            silences = await list_silences(connection, ending_after=now, projects=projects)
            muting = Muting(silences, now=now)
            begun = await queries.find_beginnings(connection, due)
            due_now = _DueDeliveries()
            for one in due:
                case = cases.get(one.alert_id)
                if case is None:  # it is damaged or being removed with its run
                    due_now.by_verdict[Verdict.HOLD].append(one)
                    continue
                verdict = judge(
                    one,
                    case,
                    firing=begun.get(one.number),
                    silenced=is_held_back(case, muting, self._config.name),
                )
                due_now.by_verdict[verdict].append(one)
        due_now.groups = group_deliveries(due_now.by_verdict[Verdict.SEND], cases)
        return due_now

    async def _explained(self, group: DeliveryGroup) -> DeliveryGroup:
        """The group with what is said of its alerts: read for one message at a time, because after
        one that fails the others are not sent in this round."""
        async with self._database.read() as connection:
            cases = await notice_queries.with_commands(connection, group.cases)
        return replace(group, cases=tuple(await self._explainer.explain(cases)))

    async def _hold(self, held: Sequence[Delivery]) -> None:
        """Look at them again a little later, so that what waits does not hide what comes after
        it."""
        now = self._clock.wall()
        for state, after_s in _HOLD_S.items():
            of_state = [one for one in held if one.state is state]
            if of_state:
                await self._mark(of_state, due_at=now + after_s)

    async def _claim(self, group: DeliveryGroup) -> DeliveryGroup | None:
        """The group, if it is ours to send: the dispatchers of other replicas look at the same
        deliveries."""
        if not self._database.is_shared:
            return group
        until = self._clock.wall() + _CLAIM_S
        is_ours = await self._database.write(
            lambda connection: queries.claim(connection, group.deliveries, until=until)
        )
        claimed = tuple(replace(one, due_at=until) for one in group.deliveries)
        return replace(group, deliveries=claimed) if is_ours else None

    async def _send(self, group: DeliveryGroup) -> bool:
        still_open = await self._still_open(group)
        message = Message(
            title=title_of(group.cases, group.kind, still_open=still_open),
            body=body_of(group.cases, url=self._config.url, dedup_key=group.dedup_key),
            dedup_key=group.dedup_key,
            is_over=group.kind is Kind.RESOLVED and not still_open,
            did_recover=did_all_recover(group.cases),
        )
        try:
            fault = await self._attempt(message)
        except TimeoutError:
            fault = TOO_LATE
        except Exception as error:  # noqa: BLE001 - any error of the plug-in means not accepted
            fault = f"its plug-in failed with {type(error).__name__}"
        if fault:
            await self._note_failed(group, fault)
        else:
            await self._note_delivered(group)
        return not fault

    async def _attempt(self, message: Message) -> str:
        """Try to send; returns why the receiver did not accept it. While an attempt that was cut
        off still runs, nothing else is sent: a receiver has one thread, and would otherwise take
        another's."""
        if self._under_way is not None and not self._under_way.done():
            self._guard.cut()
            return TOO_LATE
        self._guard = ConnectionGuard(self._receiver.allowed)
        loop = asyncio.get_running_loop()
        self._under_way = loop.run_in_executor(
            self._threads, self._sender.send, message, self._guard
        )
        self._under_way.add_done_callback(_forget_failure)
        async with cut_after(self._guard, ATTEMPT_S):
            return await asyncio.shield(self._under_way)

    async def _still_open(self, group: DeliveryGroup) -> int:
        """Number of alerts of the incident that go on."""
        if group.kind is Kind.FIRING:
            return 0
        async with self._database.read() as connection:
            return await queries.count_open(connection, self._receiver.name, group.dedup_key)

    async def _note_delivered(self, group: DeliveryGroup) -> None:
        now = self._clock.wall()
        self.figures.last_success_at = now
        await self._mark(
            group.deliveries,
            state=DeliveryState.DELIVERED.value,
            delivered_at=now,
            due_at=queries.due_unless_changed(group.deliveries, now + self._receiver.repeat_s),
            attempts=0,
            first_failed_at=None,
            error=None,
        )

    async def _note_failed(self, group: DeliveryGroup, fault: str) -> None:
        now = self._clock.wall()
        self.figures.num_failed += 1
        for one in group.deliveries:
            attempts = one.attempts + 1
            is_dead = is_given_up(one, now=now) and one.state is DeliveryState.WAITING
            log.warning(
                "receiver %s did not take alert %s (try %d): %s%s",
                self._receiver.name,
                one.alert_id,
                attempts,
                fault,
                "; given up" if is_dead else "",
            )
            self.figures.num_given_up += is_dead
            await self._mark(
                [one],
                state=DeliveryState.DEAD.value if is_dead else one.state.value,
                attempts=attempts,
                due_at=now + retry_after_s(attempts),
                first_failed_at=now if one.first_failed_at is None else one.first_failed_at,
                error=fault,
            )

    async def _mark(self, deliveries: Sequence[Delivery], **values: object) -> None:
        numbers = [one.number for one in deliveries]

        async def work(connection: AsyncConnection) -> None:
            await queries.mark(connection, numbers, values)

        await self._database.write(work)

    @property
    def _count_is_due(self) -> bool:
        return self._clock.monotonic() - self._pruned_at > _COUNT_EVERY_S

    async def _count(self) -> None:
        """Count deliveries, and now and then delete those that were settled long ago."""
        if self._count_is_due:
            before = self._clock.wall() - _SETTLED_S

            async def work(connection: AsyncConnection) -> None:
                await queries.prune(connection, before=before)

            await self._database.write(work)
            self._pruned_at = self._clock.monotonic()
        async with self._database.read() as connection:
            self.figures.counts = await queries.count_deliveries(connection, self._receiver.name)


def _forget_failure(attempt: asyncio.Future[str]) -> None:
    """Retrieve the exception of an attempt that was given up; otherwise asyncio logs it as
    unretrieved."""
    if not attempt.cancelled():
        attempt.exception()
