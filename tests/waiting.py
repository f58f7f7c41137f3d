"""Waiting for what other threads and processes do: by looking, until it is so.

Each wait has one deadline, far beyond what a machine under load takes: only what never comes about
fails by it, and what comes about is not waited for any longer.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")

LONGEST_S: Final = 400.0
_LOOK_EVERY_S: Final = 0.01


def until(look: Callable[[], T], *, said: Callable[[], object] = str) -> T:
    """The first answer that says something.

    Raises AssertionError after LONGEST_S, with the last answer and what `said` gives by then, which
    may be a log.
    """
    deadline = time.monotonic() + LONGEST_S
    while not (found := look()):
        assert time.monotonic() < deadline, f"it never came about: {found!r}\n{said()}"
        time.sleep(_LOOK_EVERY_S)
    return found


async def until_so(holds: Callable[[], bool]) -> None:
    """Until something in this process is so. Raises TimeoutError after LONGEST_S."""
    async with asyncio.timeout(LONGEST_S):
        while not holds():
            await asyncio.sleep(_LOOK_EVERY_S)


async def until_told(ask: Callable[[], Awaitable[T]]) -> T:
    """The first answer that says something. Raises TimeoutError after LONGEST_S."""
    async with asyncio.timeout(LONGEST_S):
        while not (found := await ask()):
            await asyncio.sleep(_LOOK_EVERY_S)
    return found
