"""Runs take turns on the thread that judges: one that is dear keeps no other waiting, and what was
sent after the fact waits for all that trains now."""

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from threading import Event

import pytest
from tests.server.alerts.bench import HandClock
from tests.server.alerts.judging.test_judging import committed
from tests.waiting import until_so

from runwatch.rules import Rows, Transition
from runwatch.vocabulary import RunId
from runwatch_server.alerts.judging.fair_queue import Payer
from runwatch_server.alerts.judging.judging_thread import JudgingThread
from runwatch_server.alerts.judging.stream_judge import StreamJudge
from runwatch_server.alerts.judging.threaded import ROWS_A_TURN, ThreadJudge
from runwatch_server.rules.pack import RuleSet

pytestmark = pytest.mark.anyio

DEAR = [committed(1, [3.0] * (10 * ROWS_A_TURN))]
IMPORTED = [replace(committed(seq, [3.0] * ROWS_A_TURN), late=True) for seq in range(1, 11)]


class NotedJudge(StreamJudge):
    """Notes its turns, and waits in its first one until it may go on."""

    def __init__(self, name: str, turns: list[str], may_go_on: Event) -> None:
        super().__init__(0, RuleSet(()))
        self._name, self._turns, self._may_go_on = name, turns, may_go_on

    def observe(self, rows: Rows) -> list[Transition]:
        self._turns.append(self._name)
        self._may_go_on.wait(60)
        return super().observe(rows)


@pytest.fixture
def thread() -> Iterator[JudgingThread]:
    made = JudgingThread("judging")
    yield made
    made.shutdown()


async def test_a_long_work_lets_others_have_their_turn_in_between(thread: JudgingThread) -> None:
    turns: list[str] = []
    gate = Event()
    dear = ThreadJudge(thread, Payer("", RunId("dear")), NotedJudge("dear", turns, gate))
    cheap = ThreadJudge(thread, Payer("", RunId("cheap")), NotedJudge("cheap", turns, gate))
    works = asyncio.gather(dear.observe(DEAR), cheap.observe([committed(1, [3.0])]))
    await asyncio.sleep(0)  # both have asked for the thread
    gate.set()
    await works

    assert turns[:3] == ["dear", "cheap", "dear"]


async def test_what_was_sent_after_the_fact_waits_for_what_trains_now(
    thread: JudgingThread,
) -> None:
    turns: list[str] = []
    gate = Event()
    imports = [
        ThreadJudge(thread, Payer("", RunId(f"import {index}")), NotedJudge("import", turns, gate))
        for index in range(20)
    ]
    live = ThreadJudge(thread, Payer("", RunId("live")), NotedJudge("live", turns, gate))
    works = asyncio.gather(
        *(judge.observe(IMPORTED) for judge in imports), live.observe([committed(1, [3.0])])
    )
    await asyncio.sleep(0)  # all have asked for the thread; an import's turn may be under way
    gate.set()
    await works

    assert "live" in turns[:2]


async def test_a_quiet_run_goes_before_all_that_have_had_more(thread: JudgingThread) -> None:
    """Each flood has had a turn when the thread stands still, and asks for the next."""
    turns: list[str] = []
    is_open, may_go_on = Event(), Event()
    floods = [
        ThreadJudge(thread, Payer("", RunId(f"flood {index}")), NotedJudge("flood", turns, is_open))
        for index in range(20)
    ]
    held = ThreadJudge(thread, Payer("", RunId("held")), NotedJudge("held", turns, may_go_on))
    quiet = ThreadJudge(thread, Payer("", RunId("quiet")), NotedJudge("quiet", turns, is_open))
    works = asyncio.gather(
        *(judge.observe(DEAR) for judge in floods), held.observe([committed(1, [3.0])])
    )
    await asyncio.sleep(0)  # all have asked for the thread
    is_open.set()
    await until_so(lambda: "held" in turns)
    asked = asyncio.ensure_future(quiet.observe([committed(1, [3.0])]))
    await asyncio.sleep(0)  # it has asked for the thread
    may_go_on.set()
    await asyncio.gather(works, asked)

    assert turns[:22] == ["flood"] * 20 + ["held", "quiet"]


async def test_what_can_wait_gets_a_turn_though_others_never_rest() -> None:
    done: list[str] = []
    clock = HandClock()
    thread = JudgingThread("judging", clock=lambda: clock.monotonic_s)
    gate = Event()

    def work(name: str, seconds: float) -> None:
        gate.wait(60)
        clock.advance(seconds)
        done.append(name)

    live = [thread.do(Payer("", RunId("live")), partial(work, "live", 0.5)) for _ in range(8)]
    imported = thread.do(Payer("", RunId("import")), partial(work, "import", 0.25), can_wait=True)
    works = asyncio.gather(*live, imported)
    await asyncio.sleep(0)  # all have asked for the thread
    gate.set()
    await works
    thread.shutdown()

    assert done.index("import") == 4


async def test_a_work_that_is_given_up_ends_with_its_turn(thread: JudgingThread) -> None:
    turns: list[str] = []
    gate = Event()
    judge = ThreadJudge(thread, Payer("", RunId("dear")), NotedJudge("dear", turns, gate))
    work = asyncio.ensure_future(judge.observe(DEAR))
    await asyncio.sleep(0)
    work.cancel()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await work
    thread.shutdown()

    assert len(turns) <= 1


async def test_whoever_has_a_result_no_longer_finds_the_thread_busy_with_it(
    thread: JudgingThread,
) -> None:
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads change places wherever they can
    try:
        for _ in range(3000):
            await thread.do(Payer("", RunId("run")), lambda: None)
            assert thread.busy_s == 0.0
    finally:
        sys.setswitchinterval(interval_s)
