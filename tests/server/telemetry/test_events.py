"""A run's events: whoever reads on from the last one misses none, and each is as it was sent."""

import math
from dataclasses import replace

import pytest
from tests.server.harness import Api, frame

from runwatch.frames import Event
from runwatch.vocabulary import RunId
from runwatch_server.clock import Clock
from runwatch_server.telemetry.events import EventLog, list_events

pytestmark = pytest.mark.anyio


def log_at(now: float) -> EventLog:
    return EventLog(Clock(wall=lambda: now, monotonic=lambda: 0.0))


async def record(api: Api, log: EventLog, run_id: RunId, *kinds: str) -> None:
    events = tuple(Event(step=0, kind=kind, at=0.0, detail={}) for kind in kinds)

    await api.services.database.write(
        lambda connection: log.record(connection, run_id, events, attempt=1, rank=0, segment=0),
        of=run_id,
    )


async def test_they_grow_whichever_replica_writes_them_and_however_its_clock_goes(
    api: Api,
) -> None:
    run_id = await api.new_run()
    ahead, behind = log_at(2e9), log_at(1e9)

    await record(api, ahead, run_id, "first", "second")
    async with api.services.database.read() as connection:
        seen = await list_events(connection, run_id)
    await record(api, behind, run_id, "third")
    await record(api, ahead, run_id, "fourth")

    async with api.services.database.read() as connection:
        rest = await list_events(connection, run_id, after=seen[-1].id)
    assert [event.kind for event in (*seen, *rest)] == ["first", "second", "third", "fourth"]


async def test_a_detail_that_is_not_finite_is_told_as_what_it_is(api: Api) -> None:
    run_id = await api.new_run()
    sent = replace(
        frame(1, [1.0]), events=(Event(0, "probe", 1.7e9, {"a": math.nan, "b": math.inf, "c": 2}),)
    )
    await api.post(run_id, sent)

    found = await api.json("GET", f"/runs/{run_id}/timeline", params={"kind": "probe"})

    assert found["events"][0]["detail"] == {"a": "NaN", "b": "+Inf", "c": 2}
