"""The object store away for a while: steps are late, never wrong, and packing waits for it."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.server.harness import Api, HandClock, Storage, both_engines, frame, serve
from tests.server.objects.s3 import S3Server
from tests.server.telemetry.packs.stored_run import DAY_S, packer

from runwatch.vocabulary import RunId
from runwatch_server.objects import ObjectStore
from runwatch_server.telemetry.packs.packing import PackLimits

pytestmark = [pytest.mark.anyio, both_engines]

_LEFT_ALONE_S = 20.0
"""Longer than a store that did not answer is left alone."""


@dataclass
class Outage:
    """Of the store: a server that is stopped, or a folder in whose place lies something else."""

    begin: Callable[[], None]
    end: Callable[[], None]


@pytest.fixture
def s3() -> Iterator[S3Server]:
    """One of the test's own, which may be stopped."""
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def outage(engine: str, tmp_path: Path, objects_url: str, request: pytest.FixtureRequest) -> Outage:
    if engine == "postgresql":
        server: S3Server = request.getfixturevalue("s3")
        return Outage(server.stop, server.start)
    folder, away = tmp_path / "objects", tmp_path / "away"
    folder.mkdir()

    def begin() -> None:
        folder.rename(away)
        folder.touch()

    def end() -> None:
        folder.unlink()
        away.rename(folder)

    return Outage(begin, end)


@pytest.fixture
async def api(storage: Storage, hand_clock: HandClock, objects_url: str) -> AsyncIterator[Api]:
    async with serve(storage, clock=hand_clock, objects_url=objects_url) as api:
        yield api


async def ended_run(api: Api) -> RunId:
    """Of seven frames of ten steps; all but the last can be packed."""
    run_id = await api.new_run()
    for seq in range(1, 8):
        assert (await api.post(run_id, frame(seq, [1.0] * 10, first_step=10 * seq))).is_success
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})
    return run_id


async def pack(api: Api, objects: ObjectStore, hand_clock: HandClock) -> int:
    limits = PackLimits(pack_bytes=1, least_bytes=1)
    return await packer(api, objects, hand_clock, limits).run()


async def losses(api: Api, run_id: RunId) -> Any:
    return await api.series(run_id, metric="loss", points=1000)


async def test_packed_steps_are_late_while_the_store_is_away_and_there_when_it_is_back(
    api: Api, hand_clock: HandClock, objects: ObjectStore, outage: Outage
) -> None:
    run_id = await ended_run(api)
    before = await losses(api, run_id)
    hand_clock.now += 2 * DAY_S
    assert await pack(api, objects, hand_clock) == 6

    outage.begin()
    during = await losses(api, run_id)
    backtest = await api.call("POST", "/rules/backtest", json={"run_id": run_id})
    outage.end()
    hand_clock.now += _LEFT_ALONE_S
    after = await losses(api, run_id)

    assert during["gaps"] == [{"first_step": 10, "last_step": 69, "reason": "late"}]
    assert during["steps"] == list(range(70, 80))
    assert backtest.status_code == 503
    assert after == before
    path = f"/runs/{run_id}/timeline"
    told = await api.json("GET", path, params={"kind": "unreadable"})
    assert told["events"] == []  # nothing is lost


async def test_frames_stay_where_they_are_while_there_is_nowhere_to_pack_them_to(
    api: Api, hand_clock: HandClock, objects: ObjectStore, outage: Outage
) -> None:
    run_id = await ended_run(api)
    before = await losses(api, run_id)
    hand_clock.now += 2 * DAY_S

    outage.begin()
    assert await pack(api, objects, hand_clock) == 0
    during = await losses(api, run_id)
    outage.end()
    assert await pack(api, objects, hand_clock) == 6

    assert during == before
    assert await losses(api, run_id) == before
