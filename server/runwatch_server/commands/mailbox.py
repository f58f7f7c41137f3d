"""The pending commands of runs, in memory.

So no reply to a trainer costs a query, and a long poll is answered the moment a command is queued.
Everything here is on disk already: `post` follows a commit. Proposals, which no trainer is told of,
are not here: thousands may be open.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runwatch.commands import Command, CommandState
from runwatch.vocabulary import CommandId, RunId
from runwatch_server.commands.lifecycle import DELIVERABLE, is_final_answer
from runwatch_server.commands.records import CommandMark, CommandRecord


@dataclass(frozen=True, slots=True)
class Posted:
    """A command, and its ranks' answers so far."""

    record: CommandRecord
    answers: Mapping[int, CommandState]

    def is_for(self, attempt: int, rank: int, now: float) -> bool:
        """Whether this rank must (still) be told."""
        return (
            self.record.state in DELIVERABLE
            and self.record.attempt == attempt
            and now < self.record.expires_at
            and not is_final_answer(self.answers.get(rank))
        )


class _Waiter:
    """One long poll."""

    def __init__(self) -> None:
        self.wakes = asyncio.Event()
        self.is_released = False

    def release(self) -> None:
        self.is_released = True
        self.wakes.set()


class Mailbox:
    """The commands that trainers must be given, by run."""

    def __init__(self) -> None:
        self._posted: dict[RunId, tuple[Posted, ...]] = {}
        self._delivered: set[CommandId] = set()
        self._waiting: dict[RunId, set[_Waiter]] = {}
        self._is_closed = False

    def post(self, run_id: RunId, posted: Sequence[Posted]) -> None:
        """Replaces the pending commands of a run, and wakes its long polls."""
        posted = [one for one in posted if one.record.state in DELIVERABLE]
        before = {one.record.id for one in self._posted.get(run_id, ())}
        self._delivered -= before - {one.record.id for one in posted}
        if posted:
            self._posted[run_id] = tuple(posted)
        else:
            self._posted.pop(run_id, None)
        for waiter in self._waiting.get(run_id, ()):
            waiter.wakes.set()

    def holds(self, run_id: RunId) -> bool:
        """Whether the run has pending commands."""
        return run_id in self._posted

    def changed_runs(self, under_way: Sequence[CommandMark]) -> list[RunId]:
        """The runs whose pending commands differ from those that are posted."""
        found: dict[RunId, set[tuple[CommandId, CommandState]]] = {}
        for mark in (mark for mark in under_way if mark.state in DELIVERABLE):
            found.setdefault(mark.run_id, set()).add((mark.id, mark.state))
        return [
            run_id
            for run_id in found.keys() | self._posted.keys()
            if found.get(run_id, set())
            != {(one.record.id, one.record.state) for one in self._posted.get(run_id, ())}
        ]

    def release(self, run_id: RunId) -> None:
        """Answers a run's long polls: there is nothing more to come."""
        for waiter in self._waiting.get(run_id, ()):
            waiter.release()

    def close(self) -> None:
        """Answers all long polls, and lets none wait from now on."""
        self._is_closed = True
        for run_id in self._waiting:
            self.release(run_id)

    def take(self, run_id: RunId, attempt: int, rank: int, now: float) -> tuple[Command, ...]:
        """The commands for this rank: each is repeated until the rank has given its answer."""
        return tuple(
            posted.record.to_command()
            for posted in self._posted.get(run_id, ())
            if posted.is_for(attempt, rank, now)
        )

    def take_first_deliveries(
        self, run_id: RunId, delivered: Sequence[Command]
    ) -> list[CommandRecord]:
        """The commands among those just given out that were never given out before."""
        ids = {command.id for command in delivered} - self._delivered
        self._delivered |= ids
        return [
            one.record
            for one in self._posted.get(run_id, ())
            if one.record.id in ids and one.record.state is CommandState.QUEUED
        ]

    async def wait(self, run_id: RunId, wait_s: float) -> bool:
        """Returns when something changed for the run; False if nothing did in time or ever will."""
        if self._is_closed:
            return False
        waiter = _Waiter()
        waiting = self._waiting.setdefault(run_id, set())
        waiting.add(waiter)
        try:
            async with asyncio.timeout(wait_s):
                await waiter.wakes.wait()
        except TimeoutError:
            return False
        finally:
            waiting.discard(waiter)
            if not waiting and self._waiting.get(run_id) is waiting:
                del self._waiting[run_id]
        return not waiter.is_released
