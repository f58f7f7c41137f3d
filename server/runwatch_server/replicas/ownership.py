"""Who may judge a run: the only service on a database, or one of several on a shared one."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.errors import RunwatchError
from runwatch.vocabulary import RunId


class NotOwnerError(RunwatchError):
    """Another replica has taken over, so this one's write is void."""


class Ownership(Protocol):
    """The ownership of runs, and of duties that one replica does for all."""

    def owns(self, run_id: RunId) -> bool:
        """Whether this replica owns a run, as far as is known here; only `check` is certain."""
        ...

    def want(self, run_id: RunId) -> None:
        """There is something to judge: take over the run, or notify its owner."""
        ...

    async def take(self, duty: str) -> bool:
        """Take a duty; returns whether it is now this replica's."""
        ...

    async def check(self, connection: AsyncConnection, run_id: RunId) -> None:
        """Call it in each transaction that writes results of judging. Raises NotOwnerError, which
        undoes the transaction."""
        ...


class SoleOwner:
    """The only service on a database."""

    def owns(self, run_id: RunId) -> bool:
        return True

    def want(self, run_id: RunId) -> None:
        """Nothing to do: this service owns all runs."""

    async def take(self, duty: str) -> bool:
        return True

    async def check(self, connection: AsyncConnection, run_id: RunId) -> None:
        """Nothing to check: there is no other owner."""


Job = Callable[[], Awaitable[None]]


def as_duty(ownership: Ownership, duty: str, job: Callable[[], Awaitable[object]]) -> Job:
    """A job that does nothing if another replica does it."""

    async def run() -> None:
        if await ownership.take(duty):
            await job()

    return run
