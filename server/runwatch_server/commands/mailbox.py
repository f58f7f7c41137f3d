"""Commands on their way, in memory: no reply to a trainer costs a query, and a long poll is
answered the moment something is queued. What is here is on disk already; `post` follows a commit.
Proposals, of which no trainer is told, are not here: thousands may be open.
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
    """A command, and what its ranks have answered so far."""

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
    """The commands that trainers are to be told of, by run."""

    def __init__(self) -> None:
        self._posted: dict[RunId, tuple[Posted, ...]] = {}
        self._told: set[CommandId] = set()
        self._waiting: dict[RunId, set[_Waiter]] = {}
        self._is_closed = False

    def post(self, run_id: RunId, posted: Sequence[Posted]) -> None:
        """Replace what is under way for a run, and wake those who wait for it."""
        posted = [one for one in posted if one.record.state in DELIVERABLE]
        before = {one.record.id for one in self._posted.get(run_id, ())}
        self._told -= before - {one.record.id for one in posted}
        if posted:
            self._posted[run_id] = tuple(posted)
        else:
            self._posted.pop(run_id, None)
        for waiter in self._waiting.get(run_id, ()):
            waiter.wakes.set()

    def holds(self, run_id: RunId) -> bool:
        """Whether the trainers of a run are to be told of anything."""
        return run_id in self._posted

    def changed_runs(self, under_way: Sequence[CommandMark]) -> list[RunId]:
        """The runs of whose commands something else is to be told than what is posted."""
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
        """Let those go who wait for a run: there is nothing more to come."""
        for waiter in self._waiting.get(run_id, ()):
            waiter.release()

    def close(self) -> None:
        """Let all go who wait, and nobody wait any more."""
        self._is_closed = True
        for run_id in self._waiting:
            self.release(run_id)

    def take(self, run_id: RunId, attempt: int, rank: int, now: float) -> tuple[Command, ...]:
        """What this rank must be told now: again and again, until it has given its answer."""
        return tuple(
            posted.record.to_command()
            for posted in self._posted.get(run_id, ())
            if posted.is_for(attempt, rank, now)
        )

    def tell_first_time(self, run_id: RunId, told: Sequence[Command]) -> list[CommandRecord]:
        """Those of the commands just told that were never told before."""
        ids = {command.id for command in told} - self._told
        self._told |= ids
        return [
            one.record
            for one in self._posted.get(run_id, ())
            if one.record.id in ids and one.record.state is CommandState.QUEUED
        ]

    async def wait(self, run_id: RunId, wait_s: float) -> bool:
        """Return when something changed for the run; False where nothing did in time, or never
        will."""
        if self._is_closed:
            return False
        waiter = _Waiter()
        waiting = self._waiting.setdefault(run_id, set())
        waiting.add(waiter)
        try:
            await asyncio.wait_for(waiter.wakes.wait(), wait_s)
        except TimeoutError:
            return False
        finally:
            waiting.discard(waiter)
            if not waiting and self._waiting.get(run_id) is waiting:
                del self._waiting[run_id]
        return not waiter.is_released
