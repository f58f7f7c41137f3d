"""A pause is seen whenever it comes, the first second included."""

import asyncio

import pytest
from tests.server.harness import HandClock

from runwatch.vocabulary import RunId, RunState
from runwatch_server.runs.liveness import Liveness
from runwatch_server.runs.pause_watch import PauseWatch
from runwatch_server.runs.states import judge_state

pytestmark = pytest.mark.anyio

RUN = RunId("01J00000000000000000000000")


async def test_a_pause_in_the_first_second_is_nobody_s_silence() -> None:
    hand_clock, liveness = HandClock(now=100.0), Liveness()
    watching = asyncio.create_task(PauseWatch(hand_clock.clock(), liveness).run())
    await asyncio.sleep(0)
    liveness.note_frame(RUN, 1, 0, last_step=2, times=[1.0, 2.0], now=100.0)
    hand_clock.now += 1000.0

    facts = liveness.facts(RUN, now=hand_clock.now)
    watching.cancel()

    assert facts
    assert judge_state(facts, stall_s=100.0, lost_s=30.0, known=RunState.TRAINING) == "training"
