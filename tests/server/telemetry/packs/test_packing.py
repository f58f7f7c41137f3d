"""Packed frames: read as before, acknowledged as before, and never in two places."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from tests.server.harness import Api, HandClock, Storage, both_engines, frame, serve
from tests.server.telemetry.packs.stored_run import (
    DAY_S,
    all_that_is_read,
    packer,
    send_hard_run,
    stats,
)
from tests.waiting import until_told

from runwatch.vocabulary import RunId
from runwatch_server.objects import ObjectLostError, ObjectStore
from runwatch_server.telemetry.packs.packing import PackLimits
from runwatch_server.telemetry.packs.tables import loose_objects, packs
from runwatch_server.telemetry.tables import frames

pytestmark = [pytest.mark.anyio, both_engines]


@pytest.fixture
async def api(storage: Storage, hand_clock: HandClock, objects_url: str) -> AsyncIterator[Api]:
    """Its readers find the packs in the store that the test packs into."""
    async with serve(storage, clock=hand_clock, objects_url=objects_url) as api:
        yield api


async def counted(api: Api, table: sa.Table, run_id: RunId) -> int:
    query = sa.select(sa.func.count()).select_from(table).where(table.c.run_id == run_id)
    async with api.services.database.read() as connection:
        return await connection.scalar(query) or 0


async def test_readers_see_the_same_bits_before_and_after(
    api: Api, hand_clock: HandClock, objects: ObjectStore
) -> None:
    run_id = await send_hard_run(api)
    await api.services.roller.roll()
    before = await all_that_is_read(api, run_id)
    num_frames = await counted(api, frames, run_id)
    hand_clock.now += 2 * DAY_S

    num_packs = await packer(api, objects, hand_clock).run()

    assert num_packs >= 5
    assert await counted(api, packs, run_id) == num_packs
    assert await counted(api, frames, run_id) < num_frames / 2
    assert await all_that_is_read(api, run_id) == before


async def test_a_late_retry_of_a_packed_frame_is_a_duplicate_and_stored_nowhere(
    api: Api, hand_clock: HandClock, objects: ObjectStore
) -> None:
    run_id = await api.new_run()
    rng = np.random.default_rng(1)
    sent = [frame(s, [1.0] * 50, first_step=50 * s, stats=stats(50, rng)) for s in range(1, 9)]
    for one in sent:
        assert (await api.post(run_id, one)).status_code == 200
    hand_clock.now += 2 * DAY_S
    limits = PackLimits(pack_bytes=2000, least_bytes=1)
    assert await packer(api, objects, hand_clock, limits).run() > 0
    held = await counted(api, frames, run_id)

    again = (await api.post(run_id, sent[0])).json()
    other = await api.post(run_id, frame(1, [2.0] * 50, first_step=50))

    assert (again["duplicate"], again["next"]) == (True, 9)
    assert (other.status_code, other.json()["code"]) == (422, "conflict")
    assert await counted(api, frames, run_id) == held


async def test_what_a_missing_frame_may_still_come_before_is_not_packed(
    api: Api, hand_clock: HandClock, objects: ObjectStore
) -> None:
    run_id = await api.new_run()
    for seq in (1, 2, 4, 5):
        assert (await api.post(run_id, frame(seq, [1.0], first_step=seq))).status_code == 200
    hand_clock.now += 2 * DAY_S

    limits = PackLimits(pack_bytes=1, least_bytes=1)
    await packer(api, objects, hand_clock, limits).run()
    late = await api.post(run_id, frame(3, [3.0], first_step=3))

    assert (late.json()["duplicate"], late.json()["next"]) == (False, 6)
    assert (await api.series(run_id, metric="loss"))["values"] == [1.0, 1.0, 3.0, 1.0, 1.0]


async def test_a_run_that_goes_on_is_packed_but_for_its_young_and_its_newest_frames(
    api: Api, hand_clock: HandClock, objects: ObjectStore
) -> None:
    run_id = await api.new_run()
    rng = np.random.default_rng(2)
    for seq in range(1, 25):
        sent = frame(seq, [1.0] * 100, first_step=100 * seq, stats=stats(100, rng))
        assert (await api.post(run_id, sent)).status_code == 200
        hand_clock.now += DAY_S / 20
    await packer(api, objects, hand_clock, PackLimits(pack_bytes=3000, least_bytes=1)).run()

    assert await counted(api, packs, run_id) > 0
    assert 20 <= await counted(api, frames, run_id) < 24


async def test_an_object_that_no_pack_has_is_swept_and_no_other(
    api: Api, hand_clock: HandClock, objects: ObjectStore
) -> None:
    """A deleted run's, and that of a service which died between its write and its commit."""
    gone, kept = await send_hard_run(api), await send_hard_run(api)
    hand_clock.now += 2 * DAY_S
    packing = packer(api, objects, hand_clock)
    await packing.run()
    of_gone, of_kept = [await names_of(api, run_id) for run_id in (gone, kept)]
    await api.call("DELETE", f"/runs/{gone}")
    await objects.put("x/unfinished.pack", b"half a pack")
    row = {"name": "x/unfinished.pack", "noted_at": hand_clock.now, "condemned": False}
    await api.services.database.write(
        lambda connection: connection.execute(loose_objects.insert(), row)
    )

    hand_clock.now += 7200
    await packing.sweep()

    assert not any([await is_there(objects, name) for name in (*of_gone, "x/unfinished.pack")])
    assert all([await is_there(objects, name) for name in of_kept])


async def test_two_packers_at_once_pack_everything_once(
    api: Api, hand_clock: HandClock, objects: ObjectStore
) -> None:
    """As where a replica was paused and comes back."""
    run_id = await send_hard_run(api)
    before = await all_that_is_read(api, run_id)
    hand_clock.now += 2 * DAY_S

    one, other = (packer(api, objects, hand_clock) for _ in range(2))
    await asyncio.gather(one.run(), other.run())

    assert await all_that_is_read(api, run_id) == before
    assert len(set(await names_of(api, run_id))) == await counted(api, packs, run_id)


class SleepyObjects:
    """A store before which a packer sleeps for two hours, while another one sweeps."""

    def __init__(self, api: Api, objects: ObjectStore, hand_clock: HandClock) -> None:
        self.place = objects.place
        self.delete = objects.delete
        self.read = objects.read
        self.written: list[str] = []
        self._api = api
        self._objects = objects
        self._hand_clock = hand_clock

    async def put(self, name: str, content: bytes) -> None:
        self._hand_clock.now += 7200
        await packer(self._api, self._objects, self._hand_clock).sweep()
        await self._objects.put(name, content)
        self.written.append(name)


async def test_an_object_that_is_written_after_its_name_was_swept_is_swept_again(
    api: Api, hand_clock: HandClock, objects: ObjectStore
) -> None:
    run_id = await send_hard_run(api)
    before = await counted(api, frames, run_id)
    hand_clock.now += 2 * DAY_S
    sleepy = SleepyObjects(api, objects, hand_clock)

    assert await packer(api, sleepy, hand_clock).run() == 0
    hand_clock.now += 7200
    await packer(api, objects, hand_clock).sweep()

    assert sleepy.written
    assert not any([await is_there(objects, name) for name in sleepy.written])
    assert await counted(api, frames, run_id) == before


async def test_old_packs_go_and_their_rollups_answer(
    api: Api, hand_clock: HandClock, objects: ObjectStore
) -> None:
    run_id = await api.new_run()
    for seq in range(1, 12):
        values = np.ones((200, 2), np.float32)
        falling = np.linspace(5.0 - seq / 3, 5.0 - (seq + 1) / 3, 200)
        sent = frame(seq, falling, first_step=200 * (seq - 1), stats=values)
        assert (await api.post(run_id, sent)).status_code == 200
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})
    await api.services.roller.roll()
    hand_clock.now += 2 * DAY_S
    packing = packer(api, objects, hand_clock, PackLimits(pack_bytes=500, least_bytes=1))
    await packing.run()
    names = await names_of(api, run_id)

    hand_clock.now += 40 * DAY_S
    removed = await api.services.retention.remove_due()
    hand_clock.now += 7200
    await packing.sweep()

    assert removed.num_frames == 11
    left = set(await names_of(api, run_id))
    assert {name for name in names if await is_there(objects, name)} == left
    series = await api.series(run_id, layer="last.weight", stat="grad_norm", points=10_000)
    assert (series["step_width"], sum(series["count"])) == (64, 2200)


async def test_an_object_lost_or_damaged_is_a_named_gap_and_an_event(
    api: Api, hand_clock: HandClock, objects: ObjectStore
) -> None:
    run_id = await api.new_run()
    for seq in range(1, 8):
        sent = frame(seq, [1.0] * 10, first_step=10 * (seq - 1), stats=np.ones((10, 2), np.float32))
        assert (await api.post(run_id, sent)).status_code == 200
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})
    hand_clock.now += 2 * DAY_S
    await packer(api, objects, hand_clock, PackLimits(pack_bytes=1, least_bytes=1)).run()
    names = await names_of(api, run_id)
    await objects.delete(names[1])
    await objects.put(names[3], b"RWP1" + bytes(60))

    series = await api.series(run_id, metric="loss", points=100)
    heat_map = await api.json("GET", f"/runs/{run_id}/heatmap", params={"stat": "grad_norm"})
    backtest = await api.json("POST", "/rules/backtest", json={"run_id": run_id})

    named = [
        {"first_step": 10, "last_step": 19, "reason": "lost"},
        {"first_step": 30, "last_step": 39, "reason": "corrupt"},
    ]
    assert (series["gaps"], heat_map["gaps"]) == (named, named)
    assert series["steps"] == [*range(10), *range(20, 30), *range(40, 70)]
    assert backtest["runs"][0]["rows"] == 50
    assert await noted(api, run_id) == {("lost", 10), ("corrupt", 30)}


async def noted(api: Api, run_id: RunId) -> set[tuple[str, int]]:
    """The run's events of what could not be read, once there are two."""

    async def both() -> list[Any]:
        path = f"/runs/{run_id}/timeline"
        found = await api.json("GET", path, params={"kind": "unreadable"})
        return found["events"] if len(found["events"]) > 1 else []

    events = await until_told(both)
    return {(event["detail"]["reason"], event["step"]) for event in events}


async def names_of(api: Api, run_id: RunId) -> list[str]:
    async with api.services.database.read() as connection:
        return list(
            await connection.scalars(
                sa.select(packs.c.object)
                .where(packs.c.run_id == run_id)
                .order_by(packs.c.first_seq)
            )
        )


async def is_there(objects: ObjectStore, name: str) -> bool:
    try:
        await objects.read(name, [(0, 1)])
    except ObjectLostError:
        return False
    return True
