"""The service's wall clock set back and forth under a run, by an hour, by a summer time, beyond
2038: what is stored and what is judged are those of a run on a steady clock."""

import math
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from tests.faults.checker import violations
from tests.faults.history import Acked, Alerts, History, Sent, checksum
from tests.faults.noisy_run import FAR, NUM_FRAMES, STEPS_A_FRAME, losses_of
from tests.faults.recording import note_frames, stream_name
from tests.server.harness import Api, HandClock, frame, serve
from tests.waiting import until_told

from runwatch.codec import encode_frame
from runwatch.vocabulary import RunId
from runwatch_server.clock import Clock

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

_HOUR_S: Final = 3600.0
_OVER_S: Final = datetime(2038, 1, 19, 3, 14, 9, tzinfo=UTC).timestamp() - time.time()
_JUMPS: Final = {40: _HOUR_S, 90: -_HOUR_S, 140: 0.0, 190: _OVER_S, 230: 0.0}
"""After which frame the clock goes how far ahead of the true time."""


@dataclass
class JumpingClock(HandClock):
    """A second passes between two frames, whatever the wall clock says."""

    ahead_s: float = 0.0

    def clock(self) -> Clock:
        return Clock(wall=lambda: self.now + self.ahead_s, monotonic=lambda: self.now)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def jumping() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
async def api(tmp_path: Path, jumping: JumpingClock) -> AsyncIterator[Api]:
    async with serve(tmp_path, clock=jumping) as api:
        yield api


async def send_run(
    api: Api, clock: JumpingClock, jumps: dict[int, float], history: History
) -> tuple[RunId, str]:
    """The run, and what its alerts say."""
    run_id = await api.new_run()
    stream = stream_name(run_id, 1, 0)
    for seq in range(1, NUM_FRAMES + 2):
        is_last = seq == NUM_FRAMES + 1
        losses = [1.0, math.nan] if is_last else losses_of(seq)
        first_step = (seq - 1) * STEPS_A_FRAME + (FAR if is_last else 0)
        body = encode_frame(frame(seq, losses, first_step=first_step))
        history.note(Sent(stream, seq, checksum(body)))
        assert (await api.post_body(run_id, body)).status_code == 200
        history.note(Acked(stream, seq))
        clock.now += 1.0
        clock.ahead_s = jumps.get(seq, clock.ahead_s)
        await api.services.ticker.tick()
    return run_id, await judged(api, run_id)


async def judged(api: Api, run_id: RunId) -> str:
    """Once the last step has been judged."""

    async def all_told() -> list[Any]:
        params = {"run_id": run_id, "limit": 500}
        found: list[Any] = (await api.json("GET", "/alerts", params=params))["alerts"]
        last = NUM_FRAMES * STEPS_A_FRAME + FAR + 1
        return found if any(one["firing_step"] == last for one in found) else []

    alerts = await until_told(all_told)
    facts = ("rule", "state", "severity", "onset_step", "firing_step", "resolved_step", "summary")
    return repr(sorted([one[fact] for fact in facts] for one in alerts))


async def test_a_clock_that_jumps_changes_nothing_in_what_is_stored_and_judged(
    api: Api, jumping: JumpingClock, tmp_path: Path
) -> None:
    history = History(tmp_path / "history.jsonl")
    steady, expected = await send_run(api, jumping, {}, history)
    run_id, live = await send_run(api, jumping, _JUMPS, history)

    assert expected.count("NonFinite") >= 3
    history.note(Alerts(run_id, live=live, replayed=expected))
    with closing(sqlite3.connect(f"file:{tmp_path}/runwatch.db?mode=ro", uri=True)) as database:
        note_frames(history, database.execute, [steady, run_id])
    assert violations(history) == []
