"""Commands on their way, in memory: no reply to a trainer costs a query, and a long poll is
answered the moment something is queued. What is here is on disk already; `post` follows a commit.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runwatch.commands import Command, CommandState
from runwatch.vocabulary import CommandId, RunId
from runwatch_server.commands.lifecycle import DELIVERABLE, is_final_answer
from runwatch_server.commands.queries import CommandRecord


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


class Mailbox:
    """The commands that are under way, by run."""

    def __init__(self) -> None:
        self._posted: dict[RunId, tuple[Posted, ...]] = {}
        self._told: set[CommandId] = set()
        self._waiting: dict[RunId, set[asyncio.Event]] = {}

    def post(self, run_id: RunId, posted: Sequence[Posted]) -> None:
        """Replace what is under way for a run, and wake those who wait for it."""
        before = {one.record.id for one in self._posted.get(run_id, ())}
        self._told -= before - {one.record.id for one in posted}
        if posted:
            self._posted[run_id] = tuple(posted)
        else:
            self._posted.pop(run_id, None)
        for event in self._waiting.get(run_id, ()):
            event.set()

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

    async def wait(self, run_id: RunId, wait_s: float) -> None:
        """Return when something changed for the run, or after a time."""
        event = asyncio.Event()
        waiting = self._waiting.setdefault(run_id, set())
        waiting.add(event)
        try:
            await asyncio.wait_for(event.wait(), wait_s)
        except TimeoutError:
            pass
        finally:
            waiting.discard(event)
            if not waiting and self._waiting.get(run_id) is waiting:
                del self._waiting[run_id]
