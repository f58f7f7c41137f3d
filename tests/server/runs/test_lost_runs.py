"""A run that was never closed ends once it has been lost for days."""

from functools import partial

import pytest
from tests.server.harness import Api, HandClock, both_engines, frame, new_id

from runwatch.vocabulary import RunId, RunState
from runwatch_server.runs import queries
from runwatch_server.runs.lost_runs import LostRuns
from runwatch_server.runs.queries import OpenRun

pytestmark = [pytest.mark.anyio, both_engines]

DAY_S = 86_400.0


async def brought_in(api: Api) -> RunId:
    run_id = new_id()
    body = {"run_id": run_id, "name": "synced", "project": "default"}
    await api.json("POST", "/runs", json=body)
    await api.new_attempt(run_id, live=False)
    return run_id


async def lose(api: Api, run_id: RunId, *, at: float) -> None:
    """As the watcher finds it, which looks each second and so may come in between."""
    api.services.liveness.forget(run_id)
    while True:
        async with api.services.database.read() as connection:
            found = await queries.find_run(connection, run_id)
        assert found is not None
        if found.state is RunState.LOST:
            return
        known = OpenRun(run_id, found.state, found.current_attempt, found.created_at)
        change = partial(queries.change_state, found=known, state=RunState.LOST, at=at)
        await api.services.database.write(change)


async def test_a_run_that_was_lost_for_a_week_ends_and_its_data_ages(
    api: Api, hand_clock: HandClock
) -> None:
    clock = hand_clock.clock()
    lost_runs = LostRuns(api.services.database, clock, lost_days=7)
    lost, synced = await api.new_run(), await brought_in(api)
    assert (await api.post(lost, frame(1, [1.0, 2.0]))).status_code == 200
    await lose(api, lost, at=hand_clock.now)

    hand_clock.now += 6 * DAY_S
    in_time = await lost_runs.end_old()
    another = await api.new_run()
    hand_clock.now += 2 * DAY_S
    too_late = await lost_runs.end_old()
    again = await lost_runs.end_old()

    assert (in_time, too_late, again) == (0, 2, 0)
    for run_id in (lost, synced):
        run = await api.json("GET", f"/runs/{run_id}")
        (attempt,) = (await api.json("GET", f"/runs/{run_id}/attempts"))["attempts"]
        assert (run["state"], run["ended_at"] is None) == ("failed", False)
        assert attempt["reason"] == "nothing was heard from it for 7 days"
    assert (await api.json("GET", f"/runs/{another}"))["ended_at"] is None
    assert (await api.post(lost, frame(2, [3.0], first_step=2), late=True)).status_code == 200
    await api.services.roller.roll()
    hand_clock.now += 31 * DAY_S
    assert (await api.services.retention.remove_due()).num_frames == 2


async def test_where_lost_runs_are_not_to_end_they_do_not(api: Api, hand_clock: HandClock) -> None:
    await lose(api, await api.new_run(), at=hand_clock.now)
    hand_clock.now += 900 * DAY_S

    never = LostRuns(api.services.database, hand_clock.clock(), lost_days=0)

    assert await never.end_old() == 0
