"""Who may judge a run: everybody alone on a database, and one of several on a shared one."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.errors import RunwatchError
from runwatch.vocabulary import RunId


class NotOwnerError(RunwatchError):
    """Another replica has taken over: what this one was about to write is void."""


class Ownership(Protocol):
    """Of runs, and of duties that one replica does for all."""

    def owns(self, run_id: RunId) -> bool:
        """As far as is known here and now; only `check` is certain."""
        ...

    def want(self, run_id: RunId) -> None:
        """There is something to judge: take the run over, or tell whoever has it."""
        ...

    async def take(self, duty: str) -> bool:
        """Whether a duty is this replica's from here on, or was already."""
        ...

    async def check(self, connection: AsyncConnection, run_id: RunId) -> None:
        """To be called in each transaction that writes what judging came to. Raises
        NotOwnerError, and the transaction comes to nothing."""
        ...


class SoleOwner:
    """The one service on a database of its own."""

    def owns(self, run_id: RunId) -> bool:
        return True

    def want(self, run_id: RunId) -> None:
        """It is being looked after."""

    async def take(self, duty: str) -> bool:
        return True

    async def check(self, connection: AsyncConnection, run_id: RunId) -> None:
        """Nobody else could be it."""


Job = Callable[[], Awaitable[None]]


def as_duty(ownership: Ownership, duty: str, job: Callable[[], Awaitable[object]]) -> Job:
    """A job that does nothing where another replica does it."""

    async def run() -> None:
        if await ownership.take(duty):
            await job()

    return run
