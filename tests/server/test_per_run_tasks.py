"""One run that cannot be looked after, and the others that are."""

import itertools
import math
from collections.abc import Mapping
from functools import partial

import numpy as np
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.server.harness import Api, HandClock, Storage, frame, serve

from runwatch.vocabulary import RunId
from runwatch_server.alerts.tables import alerts
from runwatch_server.commands import queries
from runwatch_server.commands.records import CommandMark
from runwatch_server.commands.tables import commands
from runwatch_server.errors import OverloadedError
from runwatch_server.per_run_tasks import PerRunTasks
from runwatch_server.runs.liveness import BEAT_S
from runwatch_server.runs.queries import delete_run
from runwatch_server.runs.tables import runs
from runwatch_server.telemetry.tables import frames, layouts, segments

pytestmark = pytest.mark.anyio

BAD, GOOD = RunId("bad"), RunId("good")


async def fail() -> int:
    raise ValueError("a damaged row")


async def succeed() -> int:
    return 7


async def test_a_failure_is_logged_once_until_the_work_succeeds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks = PerRunTasks("summing up its steps")

    assert await tasks.do(BAD, fail) is None
    assert await tasks.do(BAD, fail) is None
    assert await tasks.do(GOOD, succeed) == 7

    (said,) = caplog.messages
    assert said == "run bad: summing up its steps failed; tried again in each round"
    assert tasks.failing == {BAD}
    await tasks.do(BAD, succeed)
    assert tasks.failing == frozenset()


async def test_a_database_that_is_away_ends_the_round() -> None:
    async def ask() -> None:
        raise OverloadedError("database_unreachable", "The database does not answer.")

    with pytest.raises(OverloadedError):
        await PerRunTasks("anything").do(BAD, ask)


async def damage(api: Api, table: sa.Table, run_id: RunId, values: Mapping[str, object]) -> None:
    """Put something else into a run's rows than was ever written."""

    async def work(connection: AsyncConnection) -> None:
        by = table.c.id if table is runs else table.c.run_id
        await connection.execute(table.update().where(by == run_id).values(**values))

    await api.services.database.write(work)


async def test_the_silence_of_other_runs_is_judged(storage: Storage, hand_clock: HandClock) -> None:
    async with serve(storage, clock=hand_clock) as api:
        bad, good = await api.new_run(), await api.new_run()
        await api.post(bad, frame(1, [math.nan]))
        await api.until_judged(bad)
        await damage(api, alerts, bad, {"facts": "{"})
        key = api.admin_key
    async with serve(storage, clock=hand_clock, admin_key=key) as api:
        listen(api, hand_clock, num_seconds=3600)
        await api.services.ticker.tick()

        assert await rules_told(api, good) == ["RunLost"]
        assert api.services.ticker.failing_runs == {bad}


def listen(api: Api, hand_clock: HandClock, num_seconds: int) -> None:
    """Let time go by beat for beat: an hour at one stroke is a pause, and nobody's silence."""
    for _ in range(num_seconds):
        hand_clock.now += BEAT_S
        api.services.liveness.beat(now=hand_clock.now)


async def rules_told(api: Api, run_id: RunId) -> list[str]:
    found = await api.json("GET", f"/alerts?run_id={run_id}")
    return [alert["rule"] for alert in found["alerts"]]


@pytest.mark.parametrize("age_s", [1.0, 86400.0])
async def test_a_run_that_is_removed_as_its_commands_expire_keeps_no_others_from_it(
    api: Api,
    hand_clock: HandClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    age_s: float,
) -> None:
    order = {"action": {"kind": "checkpoint"}}
    removed, good = [await api.new_run(allow=["checkpoint"]) for _ in range(2)]
    for run_id in (removed, good):
        await api.json("POST", f"/runs/{run_id}/commands", json=order)
    async with api.services.database.read() as connection:
        marks = await queries.mark_under_way(connection)

    async def as_of_before(_: AsyncConnection) -> list[CommandMark]:
        return marks

    monkeypatch.setattr(queries, "mark_under_way", as_of_before)
    await api.new_attempt(good)
    await api.services.database.write(partial(delete_run, run_id=removed))
    hand_clock.now += age_s
    await api.services.commands.expire_due()

    (command,) = (await api.json("GET", f"/runs/{good}/commands"))["commands"]
    assert command["state"] == "expired"
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []


async def test_the_commands_of_other_runs_expire(storage: Storage, hand_clock: HandClock) -> None:
    async with serve(storage, clock=hand_clock) as api:
        allow = ["checkpoint"]
        bad, good = await api.new_run(allow=allow), await api.new_run(allow=allow)
        for run_id in (bad, good):
            order = {"action": {"kind": "checkpoint"}}
            await api.json("POST", f"/runs/{run_id}/commands", json=order)
        await damage(api, commands, bad, {"action": "{"})
        key = api.admin_key
    async with serve(storage, clock=hand_clock, admin_key=key) as api:
        hand_clock.now += 86400
        await api.services.commands.expire_due()

        (command,) = (await api.json("GET", f"/runs/{good}/commands"))["commands"]
        assert command["state"] == "expired"


async def test_the_steps_of_other_runs_are_summed_up(
    storage: Storage, hand_clock: HandClock
) -> None:
    async with serve(storage, clock=hand_clock) as api:
        _, good = await damaged_and_good(api)
        await api.services.roller.roll()

        assert await summed_up(api) == [good]


async def test_steps_are_summed_up_behind_any_number_of_segments_that_cannot_be(
    storage: Storage, hand_clock: HandClock
) -> None:
    async with serve(storage, clock=hand_clock) as api:
        bad, good = await damaged_and_good(api)

        async def copy_to_ranks(connection: AsyncConnection) -> None:
            for table, rank in itertools.product((frames, segments), range(1, 300)):
                copied = [sa.literal(rank) if c is table.c.rank else c for c in table.c]
                rows = sa.select(*copied).where(table.c.run_id == bad, table.c.rank == 0)
                await connection.execute(table.insert().from_select(table.c.keys(), rows))

        await api.services.database.write(copy_to_ranks)
        await api.services.roller.roll()

        assert await summed_up(api) == [good]


async def damaged_and_good(api: Api) -> tuple[RunId, RunId]:
    """Two runs with steps to sum up, in the order of their ids; the first has a broken layout."""
    bad, good = sorted([await api.new_run(), await api.new_run()])
    for run_id in (bad, good):
        for seq in range(1, 3):
            stats, first_step = np.ones((1024, 2), np.float32), 1024 * (seq - 1)
            sent = frame(seq, [1.0] * 1024, first_step=first_step, stats=stats)
            assert (await api.post(run_id, sent)).status_code == 200
    await damage(api, layouts, bad, {"document": b"?"})
    api.services.layouts.forget(bad)
    return bad, good


async def summed_up(api: Api) -> list[str]:
    """The runs of which the first 1024 steps are in rollups."""
    async with api.services.database.read() as connection:
        query = sa.select(segments.c.run_id).where(segments.c.rolled_to == 1024)
        return list(await connection.scalars(query))


async def test_a_service_starts_with_a_run_whose_configuration_is_damaged(
    storage: Storage, hand_clock: HandClock
) -> None:
    async with serve(storage, clock=hand_clock) as api:
        bad, good = await api.new_run(), await api.new_run()
        await damage(api, runs, bad, {"config": "{"})
        key = api.admin_key
    async with serve(storage, clock=hand_clock, admin_key=key) as api:
        assert (await api.post(good, frame(1, [1.0]))).status_code == 200
