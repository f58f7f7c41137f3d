"""A disk that fills: frames are refused in time, and taken again when there is room."""

from pathlib import Path

import pytest
from tests.server.harness import Api, HandClock, frame, serve

from runwatch_server.disk import DiskGuard
from runwatch_server.errors import OverloadedError


class Disk:
    """What is free is said by the test."""

    def __init__(self) -> None:
        self.free = 1000
        self.num_asked = 0

    def free_bytes(self, _: Path) -> int:
        self.num_asked += 1
        return self.free


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def guard(disk: Disk, hand_clock: HandClock, tmp_path: Path) -> DiskGuard:
    return DiskGuard(
        tmp_path,
        reserve_bytes=500,
        monotonic=hand_clock.clock().monotonic,
        free_bytes=disk.free_bytes,
    )


def test_a_disk_with_less_than_the_reserve_is_full_until_there_is_more(
    guard: DiskGuard, disk: Disk, hand_clock: HandClock
) -> None:
    guard.check()
    disk.free = 499
    hand_clock.now += 1.5
    with pytest.raises(OverloadedError) as refused:
        guard.check()
    disk.free = 500
    hand_clock.now += 1.5
    guard.check()

    assert (refused.value.code, refused.value.headers) == ("disk_full", {"Retry-After": "30"})


def test_free_pages_of_the_database_count_as_free_beside_room_for_its_wal(
    disk: Disk, hand_clock: HandClock, tmp_path: Path
) -> None:
    reusable = [400]
    guard = DiskGuard(
        tmp_path,
        reserve_bytes=500,
        monotonic=hand_clock.clock().monotonic,
        free_bytes=disk.free_bytes,
        reusable_bytes=lambda: reusable[0],
    )
    found: list[bool] = []
    for free, within in ((125, 400), (125, 374), (124, 4000), (500, 0)):
        disk.free, reusable[0] = free, within
        hand_clock.now += 1.5
        found.append(guard.is_full)

    assert found == [False, True, True, False]


def test_the_system_is_asked_once_a_second(guard: DiskGuard, disk: Disk) -> None:
    for _ in range(100):
        guard.check()

    assert disk.num_asked == 1


def test_a_folder_that_was_removed_takes_nothing_and_is_no_error_of_the_service(
    hand_clock: HandClock, tmp_path: Path
) -> None:
    gone = DiskGuard(tmp_path / "gone", reserve_bytes=500, monotonic=hand_clock.clock().monotonic)

    with pytest.raises(OverloadedError, match="data directory cannot be read: No such file"):
        gone.check()
    assert gone.is_full


@pytest.mark.anyio
async def test_a_service_on_a_full_disk_takes_no_frames_and_says_so(tmp_path: Path) -> None:
    more_than_there_is = 2**40
    async with serve(tmp_path, disk_reserve_mib=more_than_there_is) as api:
        run_id = await api.new_run()

        answer = await api.post(run_id, frame(1, [1.0]))

        assert (answer.status_code, answer.json()["code"]) == (503, "disk_full")
        assert answer.headers["Retry-After"] == "30"
        assert (await api.http.get("/healthz")).json()["disk"] == "full"
        ready = await api.http.get("/readyz")  # the page and commands are there for all that
        assert (ready.status_code, ready.json()["disk"]) == (200, "full")
        assert "runwatch_disk_full 1.0" in await metrics(api)


@pytest.mark.anyio
async def test_a_service_with_room_takes_them(api: Api) -> None:
    run_id = await api.new_run()

    assert (await api.post(run_id, frame(1, [1.0]))).status_code == 200
    assert (await api.http.get("/healthz")).json()["disk"] == "ok"


async def metrics(api: Api) -> str:
    headers = {"Authorization": f"Bearer {api.admin_key}"}
    return (await api.http.get("/metrics", headers=headers)).text
