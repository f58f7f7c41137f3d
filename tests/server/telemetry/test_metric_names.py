"""A run may have so many names of metrics; what is over is left out, and the rest is kept."""

from dataclasses import replace

import numpy as np
import pytest
from tests.server.harness import Api, Storage, frame, serve

from runwatch.frames import Frame
from runwatch.vocabulary import RunId
from runwatch_server.telemetry.metric_names import without

pytestmark = pytest.mark.anyio


def named(seq: int, *names: str) -> Frame:
    """A frame of one step, whose values are 1, 2, ..."""
    values = np.arange(1.0, len(names) + 1).reshape(1, len(names))
    return replace(frame(seq, [1.0], first_step=seq - 1), metric_names=names, metrics=values)


async def names_of(api: Api, run_id: RunId) -> list[str]:
    found: dict[str, list[str]] = await api.json("GET", f"/runs/{run_id}/metrics")
    return found["metrics"]


async def test_what_is_over_is_left_out_and_the_rest_is_kept(storage: Storage) -> None:
    async with serve(storage, metrics_per_run=2) as api:
        run_id = await api.new_run()
        await api.post(run_id, named(1, "loss"))

        for seq in (2, 3):
            answer = await api.post(run_id, named(seq, f"a{seq}", "loss", f"b{seq}"))
            assert answer.status_code == 200

        assert await names_of(api, run_id) == ["a2", "loss"]
        assert (await api.series(run_id, metric="loss"))["values"] == [1.0, 2.0, 2.0]


async def test_it_is_told_once_on_the_run_s_timeline_and_counted(storage: Storage) -> None:
    async with serve(storage, metrics_per_run=1) as api:
        run_id = await api.new_run()
        for seq in (1, 2, 3):
            await api.post(run_id, named(seq, "loss", f"step_{seq}"))

        events = (await api.json("GET", f"/runs/{run_id}/timeline"))["events"]
        (told,) = [event for event in events if event["kind"] == "metrics_refused"]
        assert told["detail"] == {"names": "step_1", "num_names": 1, "most": 1}
        count = api.services.metrics.registry.get_sample_value("runwatch_refused_metrics_total")
        assert count == 3.0


async def test_such_a_frame_sent_again_is_a_duplicate(storage: Storage) -> None:
    async with serve(storage, metrics_per_run=1) as api:
        run_id = await api.new_run()
        answers = [await api.post(run_id, named(1, "loss", "other")) for _ in range(2)]

        assert [answer.json()["duplicate"] for answer in answers] == [False, True]


def test_a_frame_without_some_metrics_has_the_others_as_they_were() -> None:
    left = without(named(1, "a", "b", "c"), {"b"})

    assert left.metric_names == ("a", "c")
    assert left.metrics.tolist() == [[1.0, 3.0]]
