"""How much memory unpacked frames may take, and who gets it."""

import asyncio
from dataclasses import replace

import pytest
from tests.server.alerts.judging.test_judging import committed

from runwatch_server.telemetry.committed_frames import CommittedFrame
from runwatch_server.telemetry.frame_budget import FrameBudget

pytestmark = pytest.mark.anyio


def frame_of(project: str, num_bytes: int) -> CommittedFrame:
    return replace(committed(1, [3.0]), project=project, num_bytes=num_bytes)


class Worker:
    """Asks for room, and works until it may end."""

    def __init__(self, budget: FrameBudget, owner: str, num_bytes: int) -> None:
        self.is_at_work = False
        self._may_end = asyncio.Event()
        self._task = asyncio.create_task(self._work(budget, owner, num_bytes))

    async def _work(self, budget: FrameBudget, owner: str, num_bytes: int) -> None:
        async with budget.room(owner, num_bytes):
            self.is_at_work = True
            await self._may_end.wait()
        self.is_at_work = False

    async def end(self) -> None:
        self._may_end.set()
        await self._task

    async def give_up(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def some_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_kept_frame_counts_until_nobody_refers_to_it() -> None:
    budget = FrameBudget(2000)
    held = [frame_of("one", 300)]

    assert budget.keep(held[0])
    assert budget.used_bytes == 300
    held.clear()
    assert budget.used_bytes == 0


def test_a_frame_that_there_is_no_room_for_is_not_kept() -> None:
    budget = FrameBudget(2000)
    large = frame_of("one", 751)

    assert not budget.keep(large)
    assert budget.used_bytes == 0


def test_a_project_that_takes_all_it_can_leaves_room_for_others() -> None:
    budget = FrameBudget(2000)
    floods = [frame_of("flood", 100) for _ in range(100)]
    kept = [flood for flood in floods if budget.keep(flood)]
    quiet = frame_of("quiet", 300)

    assert len(kept) == 4
    assert budget.keep(quiet)


async def test_frames_are_worked_on_however_many_wait() -> None:
    budget = FrameBudget(2000)
    waiting = [frame_of(f"project {index}", 10) for index in range(1000)]
    kept = [one for one in waiting if budget.keep(one)]
    worker = Worker(budget, "one", 1000)
    await some_turns()

    assert len(kept) == 75
    assert worker.is_at_work
    await worker.end()


async def test_whoever_finds_no_room_waits_for_it() -> None:
    budget = FrameBudget(2000)
    first, second = Worker(budget, "one", 600), Worker(budget, "two", 600)
    await some_turns()
    assert (first.is_at_work, second.is_at_work) == (True, False)

    await first.end()
    await some_turns()

    assert second.is_at_work
    await second.end()
    assert budget.used_bytes == 0


async def test_one_project_has_at_most_half_of_the_room_and_another_need_not_wait() -> None:
    budget = FrameBudget(2000)
    floods = [Worker(budget, "flood", 300) for _ in range(4)]
    quiet = Worker(budget, "quiet", 300)
    await some_turns()

    assert [one.is_at_work for one in floods] == [True, True, False, False]
    assert quiet.is_at_work
    for one in (quiet, *floods):
        await one.end()


async def test_whoever_needs_much_is_not_passed_again_and_again() -> None:
    budget = FrameBudget(2000)
    first = Worker(budget, "one", 300)
    large, less = Worker(budget, "large", 1000), Worker(budget, "less", 100)
    await some_turns()
    assert (large.is_at_work, less.is_at_work) == (False, False)

    await first.end()
    await some_turns()

    assert large.is_at_work
    await large.end()
    await less.end()


async def test_small_frames_do_not_wait_for_large_ones_of_however_many_projects() -> None:
    budget = FrameBudget(6400)
    large = [Worker(budget, f"project {index}", 1600) for index in range(3)]
    small = Worker(budget, "quiet", 100)
    await some_turns()

    assert [one.is_at_work for one in large] == [True, True, False]
    assert small.is_at_work
    for one in (small, *large):
        await one.end()


async def test_more_than_there_is_means_all_of_it() -> None:
    worker = Worker(FrameBudget(2000), "one", 10**9)
    await some_turns()

    assert worker.is_at_work
    await worker.end()


async def test_whoever_gives_up_waiting_takes_no_room() -> None:
    budget = FrameBudget(2000)
    first, second, third = (Worker(budget, name, 1000) for name in ("one", "two", "three"))
    await some_turns()
    await second.give_up()
    await first.end()
    await some_turns()

    assert third.is_at_work
    await third.give_up()
    assert budget.used_bytes == 0
