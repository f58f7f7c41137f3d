"""Tasks that are cancelled end, whatever the libraries that they wait in do with it."""

import asyncio
from dataclasses import dataclass

import pytest

from runwatch_server.cancellation import end_tasks, result_of, run_together

pytestmark = pytest.mark.anyio


@dataclass
class Loser:
    """Loses its first cancellations, as `asyncio.wait_for` may in a library."""

    num_to_lose: int = 1

    async def run(self) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if self.num_to_lose == 0:
                    raise
                self.num_to_lose -= 1


async def begun(task: "asyncio.Task[None]") -> "asyncio.Task[None]":
    await asyncio.sleep(0)
    return task


async def test_a_task_that_loses_its_first_cancellation_ends_all_the_same() -> None:
    task = await begun(asyncio.create_task(Loser().run()))
    async with asyncio.timeout(60.0):
        await end_tasks([task], again_s=0.01)
    assert task.cancelled()


async def test_whoever_ends_tasks_leaves_none_behind_when_cancelled_meanwhile() -> None:
    task = await begun(asyncio.create_task(Loser(num_to_lose=2).run()))
    ending = await begun(asyncio.create_task(end_tasks([task], again_s=3600.0)))
    async with asyncio.timeout(60.0):
        await end_tasks([ending], again_s=0.01)
    assert task.cancelled()
    assert ending.cancelled()


async def test_parts_that_run_together_end_though_one_loses_its_first_cancellation() -> None:
    """A TaskGroup would cancel it once, and then wait for it forever."""
    together = asyncio.create_task(run_together(Loser().run(), Loser(num_to_lose=0).run()))
    async with asyncio.timeout(60.0):
        await asyncio.sleep(0.01)
        await end_tasks([together], again_s=0.01)
    assert together.cancelled()


async def test_if_one_part_fails_the_others_are_ended_and_its_error_is_raised() -> None:
    other = asyncio.Event()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    async def run() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            other.set()

    with pytest.raises(ZeroDivisionError):
        await run_together(run(), fail())
    assert other.is_set()


async def test_what_may_not_be_interrupted_is_waited_for_through_several_cancellations() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(result_of(future))
    for _ in range(3):
        await asyncio.sleep(0.001)
        waiting.cancel()
    await asyncio.sleep(0.001)
    assert not waiting.done()

    future.set_exception(ZeroDivisionError())  # which nobody wants to hear of any more
    await asyncio.wait([waiting])
    assert waiting.cancelled()


async def test_the_result_of_what_may_not_be_interrupted_is_handed_on() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    future.set_result(7)
    assert await result_of(future) == 7
