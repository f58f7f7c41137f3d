"""Where judges compute changes nothing in what they say, and a process that ends takes nothing with
it but time."""

import asyncio
import contextlib
import gc
import math
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
from tests.judging_processes import judging_processes
from tests.server.alerts.bench import LAYOUT, RUN, HandClock, healthy, rule_file, start
from tests.server.harness import Storage
from tests.waiting import LONGEST_S

from runwatch.frames import Event, Frame
from runwatch_server.alerts.judging import (
    Judge,
    JudgeLostError,
    Judging,
    JudgingFailedError,
    ProcessJudging,
    ThreadJudging,
    processes,
)
from runwatch_server.alerts.judging.messages import (
    Failed,
    GetState,
    Open,
    Release,
    Request,
    send,
)
from runwatch_server.alerts.judging.worker import Judges
from runwatch_server.rules.pack import RuleSet, load_builtin, split_file
from runwatch_server.telemetry.committed_frames import CommittedFrame

RULES = RuleSet(load_builtin())
LOW = RuleSet(split_file(rule_file("Low", "loss < 2.5")))
PLACES: dict[str, Callable[[], Judging]] = {
    "thread": ThreadJudging,
    "process": lambda: ProcessJudging(1),
    "impatient process": lambda: ProcessJudging(1, longest_s=1.0),
}
both_places = pytest.mark.parametrize("place", ["thread", "process"])


def committed(seq: int, losses: Sequence[float], *, norm: float = 1.0) -> CommittedFrame:
    """The steps after those of ten a frame."""
    num = len(losses)
    first_step = 10 * (seq - 1)
    frame = Frame(
        attempt=1,
        rank=0,
        seq=seq,
        segment=0,
        first_step=first_step,
        times=np.arange(first_step, first_step + num, dtype=np.float64),
        metric_names=("loss",),
        metrics=np.asarray(losses, np.float64).reshape(num, 1),
        layout_hash=LAYOUT.hash,
        stats=np.tile(np.array([norm, 1.0, 0.0, 0.0], np.float32), (num, 1)),
    )
    return CommittedFrame(run_id=RUN, attempt=1, rank=0, seq=seq, frame=frame, layout=LAYOUT)


STORY = [
    *(committed(seq, healthy(10)) for seq in range(1, 12)),
    committed(12, [*healthy(5), math.nan, math.inf, *healthy(3)], norm=math.nan),
    *(committed(seq, healthy(10)) for seq in range(13, 18)),
]


def at(place: str, scenario: Callable[[Judging], Awaitable[None]]) -> None:
    async def run() -> None:
        judging = PLACES[place]()
        try:
            await scenario(judging)
        finally:
            await judging.close()

    asyncio.run(run())


async def told(judge: Judge, frames: Sequence[CommittedFrame]) -> list[str]:
    """What is said of frames, with every number to its last bit."""
    return [repr(transition) for transition in await judge.observe(frames)]


@both_places
def test_what_comes_in_a_frame_without_rows_is_read_with_the_next_row(place: str) -> None:
    event = Event(3, "unwatched", 0.0, {"what": "a layer"})
    alone = Frame(
        attempt=1, rank=0, seq=1, segment=0, first_step=3, times=np.empty(0), events=(event,)
    )  # fmt: skip
    first = CommittedFrame(run_id=RUN, attempt=1, rank=0, seq=1, frame=alone, layout=None)

    async def scenario(judging: Judging) -> None:
        judge = await judging.open(RUN, 0, RULES)
        assert await judge.observe([first]) == []
        (alert,) = await judge.observe([committed(2, healthy(3))])
        assert (alert.rule, alert.step) == ("Unwatched", 10)

    at(place, scenario)


def test_a_process_says_and_remembers_what_a_thread_does() -> None:
    said: list[tuple[list[str], bytes, dict[str, float]]] = []

    async def scenario(judging: Judging) -> None:
        judge = await judging.open(RUN, 0, RULES, known={"expected_loss": 2.0})
        story = await told(judge, STORY)
        said.append((story, await judge.state(), await judge.known_to_next()))

    at("thread", scenario)
    at("process", scenario)
    assert said[0] == said[1]
    assert any("NonFinite" in one for one in said[0][0])


@both_places
def test_a_judge_goes_on_from_what_another_remembered(place: str) -> None:
    async def scenario(judging: Judging) -> None:
        whole = await judging.open(RUN, 0, RULES)
        first = await judging.open(RUN, 0, RULES)
        expected = await told(whole, STORY)
        found = await told(first, STORY[:12])
        second = await judging.open(RUN, 0, RULES, state=await first.state())
        assert found + await told(second, STORY[12:]) == expected

    at(place, scenario)


@both_places
def test_a_judge_with_other_rules_judges_by_those(place: str) -> None:
    async def scenario(judging: Judging) -> None:
        judge = await judging.open(RUN, 0, RULES)
        assert await told(judge, STORY[:1]) == []
        other = await judge.with_rules(LOW)
        (fires,) = await other.observe(STORY[1:2])
        assert (other.rule_set, fires.rule) == (LOW, "Low")

    at(place, scenario)


@both_places
def test_a_judge_of_rules_that_are_worded_in_another_way_goes_on(place: str) -> None:
    async def scenario(judging: Judging) -> None:
        rule = {"alert": "Low", "when": "loss < 2.5", "annotations": {"summary": "Other words."}}
        file = {"version": 1, "groups": [{"name": "tests", "rules": [rule]}]}
        judge = await judging.open(RUN, 0, LOW)
        assert len(await told(judge, STORY[:2])) == 1
        other = await judge.with_rules(RuleSet(split_file(file)))
        assert await told(other, STORY[2:4]) == []

    at(place, scenario)


def test_what_fails_in_a_process_is_told_and_harms_no_other_judge() -> None:
    async def scenario(judging: Judging) -> None:
        judge = await judging.open(RUN, 0, RULES)
        with pytest.raises(JudgingFailedError, match="Traceback"):
            await judging.open(RUN, 0, RULES, state=b"no state")
        assert await told(judge, STORY[:1]) == []

    at("process", scenario)


def test_a_process_that_ends_takes_its_judges_with_it_and_another_begins() -> None:
    async def scenario(judging: Judging) -> None:
        judge = await judging.open(RUN, 0, RULES)
        (pid,) = judging_processes(os.getpid())
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(JudgeLostError, match="ended with -9"):
            await judge.observe(STORY[:1])
        with pytest.raises(JudgeLostError):
            await judge.state()
        again = await judging.open(RUN, 0, RULES)
        assert await told(again, STORY[:1]) == []

    at("process", scenario)


def test_judges_that_nobody_holds_any_more_are_forgotten() -> None:
    judges = Judges()
    judges.answer(Request(Open(7, 0, LOW.hash, LOW.documents, b"", None)))
    assert isinstance(judges.answer(Request(GetState(7))), bytes)
    assert isinstance(judges.answer(Request(GetState(7), released=(7,))), Failed)


def test_a_process_lets_a_judge_go_though_nothing_more_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(judging: Judging) -> None:
        requests: list[Request] = []
        has_let_go = threading.Event()

        def noted(connection: Connection, request: Request) -> None:
            requests.append(request)
            send(connection, request)
            if request.released:
                has_let_go.set()

        monkeypatch.setattr(processes, "send", noted)
        judge = await judging.open(RUN, 0, RULES)
        await judge.observe(STORY[:1])
        del judge
        gc.collect()
        assert await asyncio.to_thread(has_let_go.wait, LONGEST_S)

        assert requests[-1] == Request(Release(), released=(0,))

    at("process", scenario)


def test_frames_of_a_process_that_was_killed_are_judged_by_the_next(tmp_path: Path) -> None:
    """What it had remembered is made anew from the database: the alert is that of a run that
    nothing disturbed, and there is one."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            bench = await start(stack, Storage(tmp_path), HandClock(), judge_processes=1)
            await bench.open()
            await bench.send([*healthy(9), math.nan], first_step=0)
            await bench.settle()
            (pid,) = judging_processes(os.getpid())
            os.kill(pid, signal.SIGKILL)
            await bench.send([*[math.nan] * 4, *healthy(30)], first_step=10)
            await bench.settle()
            (alert,) = await bench.alerts()
            assert (alert.rule, alert.onset_step, alert.resolved_step) == ("NonFinite", 9, 34)
            assert bench.alerting.evaluators.health.num_failures == 1

    asyncio.run(scenario())


def test_a_process_that_is_slow_is_seen_to() -> None:
    async def scenario(judging: Judging) -> None:
        judge = await judging.open(RUN, 0, RULES)
        assert judging.busy_s == 0.0
        (pid,) = judging_processes(os.getpid())
        os.kill(pid, signal.SIGSTOP)
        try:
            asking = asyncio.ensure_future(judge.state())
            async with asyncio.timeout(LONGEST_S):
                while judging.busy_s < 0.2:
                    await asyncio.sleep(0.01)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert await asking
        assert judging.busy_s == 0.0

    at("process", scenario)


async def opened(judging: Judging) -> Judge:
    """A judge, however long its process takes to begin: each further wait is twice as long."""
    for _ in range(4):
        with contextlib.suppress(JudgeLostError):
            return await judging.open(RUN, 0, RULES)
    return await judging.open(RUN, 0, RULES)


async def stop_it(judging: Judging) -> Judge:
    """A judge whose process stands still."""
    judge = await opened(judging)
    (pid,) = judging_processes(os.getpid())
    os.kill(pid, signal.SIGSTOP)
    return judge


def test_a_process_that_stands_still_is_replaced() -> None:
    async def scenario(judging: Judging) -> None:
        judge = await stop_it(judging)
        with pytest.raises(JudgeLostError, match=r"stood still for \d+ s"):
            await judge.state()
        again = await opened(judging)
        assert await told(again, STORY[:1]) == []

    at("impatient process", scenario)


def test_a_process_that_does_not_even_read_is_replaced() -> None:
    """More than a pipe holds."""

    async def scenario(judging: Judging) -> None:
        await stop_it(judging)
        known = {f"metric {number}": 1.0 for number in range(50_000)}
        with pytest.raises(JudgeLostError, match="stood still"):
            await judging.open(RUN, 0, RULES, known=known)

    at("impatient process", scenario)


def test_a_stop_does_not_wait_for_good_for_a_process_that_stands_still() -> None:
    async def scenario() -> None:
        judging = PLACES["impatient process"]()
        judge = await stop_it(judging)
        asking = asyncio.ensure_future(judge.state())
        await asyncio.sleep(0)
        await judging.close()
        with pytest.raises(JudgeLostError):
            await asking

    asyncio.run(scenario())
