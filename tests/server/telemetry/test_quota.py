"""A project stores as much as it may, and the others go on."""

from pathlib import Path

import httpx
import pytest
from tests.server.harness import Api, Storage, both_engines, frame, new_id, serve

from runwatch.frames import Event, Scalar
from runwatch.vocabulary import RunId

pytestmark = pytest.mark.anyio


async def fill(api: Api, run_id: RunId, num_frames: int = 2) -> list[httpx.Response]:
    """Frames of nearly a megabyte."""
    detail: dict[str, Scalar | list[str]] = {"text": ["y" * 1000] * 950}
    answers: list[httpx.Response] = []
    for seq in range(1, num_frames + 1):
        event = Event(seq, "note", 1.7e9, detail)
        answers.append(await api.post(run_id, frame(seq, [1.0], first_step=seq, events=(event,))))
    return answers


async def test_a_project_at_its_quota_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    async with serve(tmp_path, project_quota_mib=3) as api:
        large, small = await api.new_run(project="large"), await api.new_run(project="small")
        taken = await fill(api, large)
        refused = await api.post(large, frame(3, [1.0]))
        new = {"run_id": new_id(), "name": "another", "project": "large"}

        assert [answer.status_code for answer in taken] == [200, 200]
        assert (refused.status_code, refused.json()["code"]) == (503, "project_full")
        assert refused.headers["Retry-After"] == "15"
        assert "'large' has stored 3 MiB" in refused.json()["detail"]
        assert (await api.call("POST", "/runs", json=new)).json()["code"] == "project_full"
        assert (await api.post(small, frame(1, [1.0]))).status_code == 200
        assert (await api.http.get("/readyz")).json()["num_projects_full"] == 1
        headers = {"Authorization": f"Bearer {api.admin_key}"}
        metrics = (await api.http.get("/metrics", headers=headers)).text
        assert "runwatch_projects_full 1.0" in metrics


@both_engines
async def test_what_is_stored_is_measured_and_what_was_removed_makes_room(storage: Storage) -> None:
    async with serve(storage) as first:
        key, run_id = first.admin_key, await first.new_run()
        await fill(first, run_id)

    async with serve(storage, admin_key=key, project_quota_mib=1) as api:
        await api.services.quota.measure()
        refused = await api.post(run_id, frame(3, [1.0]))
        await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})
        await api.call("DELETE", f"/runs/{run_id}")
        await api.services.quota.measure()

        assert refused.json()["code"] == "project_full"
        assert (await api.post(await api.new_run(), frame(1, [1.0]))).status_code == 200


async def test_a_frame_that_comes_again_counts_once(tmp_path: Path) -> None:
    async with serve(tmp_path, project_quota_mib=2) as api:
        run_id = await api.new_run()
        for _ in range(4):
            (answer,) = await fill(api, run_id, num_frames=1)

            assert answer.status_code == 200


async def test_what_arrives_counts_as_it_will_be_measured(tmp_path: Path) -> None:
    """The details of events are stored twice: in the frame, and in the table of events. So
    two frames of nearly a megabyte are more than 3 MiB and less than 4."""

    async def codes(project_quota_mib: int) -> tuple[str | None, str | None]:
        async with serve(
            tmp_path / str(project_quota_mib), project_quota_mib=project_quota_mib
        ) as api:
            run_id = await api.new_run()
            await fill(api, run_id)
            as_it_arrives = (await api.post(run_id, frame(3, [1.0]))).json().get("code")
            await api.services.quota.measure()
            return as_it_arrives, (await api.post(run_id, frame(4, [1.0]))).json().get("code")

    assert await codes(3) == ("project_full", "project_full")
    assert await codes(4) == (None, None)


async def test_without_a_quota_nothing_is_full(api: Api) -> None:
    run_id = await api.new_run()
    await fill(api, run_id)
    await api.services.quota.measure()

    assert api.services.quota.num_full == 0
