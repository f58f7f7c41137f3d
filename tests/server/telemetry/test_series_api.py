"""Series and heat maps: the run's history, as fine as it was asked for."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.server.harness import Api, HandClock, both_engines, frame, new_id

from runwatch.frames import MAX_STEP
from runwatch.layouts import Layer, Layout
from runwatch.vocabulary import RunId

pytestmark = pytest.mark.anyio

NUM_STEPS = 20_000

_DAY_S = 86_400.0


async def send(
    api: Api,
    run_id: RunId,
    losses: NDArray[np.float64],
    *,
    stats: NDArray[np.float32] | None = None,
    first_step: int = 0,
    segment: int = 0,
    first_seq: int = 1,
) -> int:
    """Sends losses in frames of 500 steps; returns the next sequence number."""
    seq = first_seq
    for start in range(0, len(losses), 500):
        part = slice(start, start + 500)
        sent = frame(
            seq,
            losses[part],
            first_step=first_step + start,
            segment=segment,
            stats=None if stats is None else stats[part],
        )
        response = await api.post(run_id, sent)
        assert response.status_code == 200, response.text
        seq += 1
    return seq


async def roll(api: Api) -> int:
    return await api.services.roller.roll()


def losses(num_steps: int) -> NDArray[np.float64]:
    return np.linspace(5.0, 1.0, num_steps)


async def test_the_history_follows_a_rollback_and_the_old_one_stays(api: Api) -> None:
    run_id = await api.new_run()
    seq = await send(api, run_id, np.array([1.0, 2.0, 3.0, 99.0]))
    await send(api, run_id, np.array([3.5]), first_step=2, segment=1, first_seq=seq)

    now = await api.series(run_id, metric="loss")
    old = await api.series(run_id, metric="loss", segment=0)

    assert (now["steps"], now["values"]) == ([0, 1, 2], [1.0, 2.0, 3.5])
    assert old["values"] == [1.0, 2.0, 3.0, 99.0]
    assert [s["segment"] for s in now["stretches"]] == [0, 1]


async def test_a_metric_logged_afterwards_joins_its_step(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0, 2.0]))
    await api.post(run_id, frame(2, [7.0], first_step=1, metric="val_loss"))

    assert (await api.series(run_id, metric="loss"))["values"] == [1.0, 2.0]
    found = await api.series(run_id, metric="val_loss")
    assert (found["steps"], found["values"]) == ([1], [7.0])


async def test_a_stretch_in_which_a_metric_was_never_sent_is_empty(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0, 2.0]))
    await api.post(run_id, frame(2, [7.0], first_step=1, metric="val_loss"))

    found = await api.series(run_id, metric="val_loss", to=0)
    assert (found["steps"], found["values"]) == ([], [])


async def test_rollups_say_what_the_values_said(api: Api) -> None:
    run_id = await api.new_run()
    values = losses(NUM_STEPS)
    values[12_345] = 50.0
    values[777] = math.nan
    await send(api, run_id, values)
    raw = await api.series(run_id, metric="loss", points=100)

    assert await roll(api) == 19
    rolled = await api.series(run_id, metric="loss", points=100)

    assert rolled["step_width"] == raw["step_width"] == 256
    for name in ("steps", "min", "max", "count", "nonfinite"):
        assert rolled[name] == raw[name]
    np.testing.assert_allclose(rolled["mean"], raw["mean"], rtol=1e-12)
    assert rolled["max"][12_345 // 256] == 50.0
    assert rolled["nonfinite"][777 // 256] == 1


async def test_values_are_read_to_the_bit_from_their_tiles(api: Api) -> None:
    run_id = await api.new_run()
    values = losses(3000)
    values[5] = math.inf
    await send(api, run_id, values)
    await roll(api)

    found = await api.series(run_id, metric="loss", points=10_000)

    assert found["values"] == [*values[:5], "+Inf", *values[6:]]


async def test_a_layer_s_series_finds_the_spike_at_every_resolution(api: Api) -> None:
    run_id = await api.new_run()
    stats = np.ones((NUM_STEPS, 2), np.float32)
    stats[17_000, 1] = 40.0
    stats[3, 1] = math.nan
    await send(api, run_id, losses(NUM_STEPS), stats=stats)
    await roll(api)

    for points in (20, 300, 10_000):
        found = await api.series(run_id, layer="last.weight", stat="grad_norm", points=points)
        spike = found["steps"][int(np.argmax(found["max"]))]
        assert spike <= 17_000 < spike + found["step_width"]
        assert sum(found["nonfinite"]) == 1
        assert sum(found["count"]) == NUM_STEPS - 1
    close = {"from": 16_999, "to": 17_001, "layer": "last.weight", "stat": "grad_norm"}
    assert (await api.series(run_id, **close))["values"] == [1.0, 40.0, 1.0]


async def test_what_comes_late_into_a_summed_stretch_is_summed_again(api: Api) -> None:
    run_id = await api.new_run()
    seq = await send(api, run_id, losses(3000))
    assert await roll(api) == 2
    await api.post(run_id, frame(seq, [9.0], first_step=100, metric="val_loss"))

    asked = {"metric": "val_loss", "points": 10_000}
    before = await api.series(run_id, **asked)
    assert await roll(api) == 2
    after = await api.series(run_id, **asked)

    assert (before["steps"], before["values"]) == ([100], [9.0])
    assert after == before


@pytest.mark.parametrize("far", [1_700_000_000, MAX_STEP - 1100])
async def test_steps_may_lie_as_far_apart_as_samples_or_seconds(api: Api, far: int) -> None:
    run_id = await api.new_run()
    stats = np.ones((1100, 2), np.float32)
    seq = await send(api, run_id, losses(1100), stats=stats)
    await send(api, run_id, losses(1100), stats=stats, first_step=far, first_seq=seq)

    for _ in range(2):
        for asked in ({"metric": "loss"}, {"layer": "last.weight", "stat": "grad_norm"}):
            found = await api.series(run_id, **asked, points=1000)
            assert sum(found["count"]) == 2200
        close = await api.series(run_id, metric="loss", points=10, **{"from": far, "to": far + 5})
        assert close["steps"] == [far + step for step in range(6)]
        heat = await api.json("GET", f"/runs/{run_id}/heatmap", params={"stat": "grad_norm"})
        assert len(heat["steps"]) == len(heat["values"][0]) == 2
        rounds = [await roll(api) for _ in range(3)]
        assert rounds[-1] == 0  # what lies between is not summed up step by step
    ranks = await api.json("GET", f"/runs/{run_id}/ranks", params={"metric": "loss"})
    assert len(ranks["steps"]) == 2


async def test_coarse_tiles_end_where_nothing_follows_for_long(api: Api) -> None:
    run_id = await api.new_run()
    seq = await send(api, run_id, losses(5000))
    await send(api, run_id, losses(5000), first_step=1_000_000, first_seq=seq)
    asked = {"metric": "loss", "points": 200}
    before = await api.series(run_id, **asked)
    while await roll(api):
        pass

    after = await api.series(run_id, **asked)

    assert before["step_width"] == after["step_width"] > 4096
    assert after["steps"] == before["steps"]
    assert after["count"] == before["count"]
    np.testing.assert_allclose(after["mean"], before["mean"], rtol=1e-12)


async def test_undone_steps_do_not_reach_the_buckets_of_the_history(api: Api) -> None:
    run_id = await api.new_run()
    values = np.full(3000, 1.0)
    values[1030:] = 99.0
    seq = await send(api, run_id, values)
    good = np.full(2000, 1.0)
    await send(api, run_id, good, first_step=1030, segment=1, first_seq=seq)
    await roll(api)

    found = await api.series(run_id, metric="loss", points=30)

    assert set(found["max"]) == {1.0}
    assert sum(found["count"]) == 3030


async def test_steps_that_a_resume_has_replaced_do_not_reach_the_buckets_of_the_history(
    api: Api,
) -> None:
    run_id = await api.new_run()
    values, stats = np.full(17_000, 1.0), np.full((17_000, 2), 1.0, np.float32)
    values[8300:8401], stats[8300:8401] = math.nan, math.nan
    await send(api, run_id, values, stats=stats)
    attempt = await api.new_attempt(run_id, resume_step=8200)
    good, ones = np.full(301, 1.0), np.ones((301, 2), np.float32)
    await api.post(run_id, frame(1, good, attempt=attempt, first_step=8200, stats=ones))
    await roll(api)

    for asked in ({"metric": "loss"}, {"layer": "last.weight", "stat": "grad_norm"}):
        for points in (3, 20, 200):  # buckets of 4096, 512 and 64 steps
            found = await api.series(run_id, **asked, points=points)
            assert (sum(found["count"]), sum(found["nonfinite"])) == (17_000, 0)
    ranks = await api.json("GET", f"/runs/{run_id}/ranks", params={"metric": "loss", "points": 20})
    assert ranks["nonfinite"] == []


@pytest.mark.parametrize(
    "asked", [{"metric": "loss"}, {"layer": "last.weight", "stat": "grad_norm"}]
)
async def test_buckets_hold_the_steps_asked_for_and_no_others(
    api: Api, asked: dict[str, str]
) -> None:
    run_id = await api.new_run()
    await send(api, run_id, losses(NUM_STEPS), stats=np.ones((NUM_STEPS, 2), np.float32))
    await roll(api)

    for points in (2, 20, 200):
        found = await api.series(run_id, **asked, points=points, **{"from": 777, "to": 18_999})
        assert sum(found["count"]) == 18_223


async def test_who_asks_by_a_run_s_name_is_told_that_its_id_is_wanted(api: Api) -> None:
    named = await api.call("GET", "/runs/mine/series", params={"metric": "loss"})
    unknown = await api.call("GET", f"/runs/{new_id()}/series", params={"metric": "loss"})

    assert (named.status_code, named.json()["code"]) == (404, "run_not_found")
    assert "not its name" in named.json()["detail"]
    assert "not its name" not in unknown.json()["detail"]


async def test_csv_has_the_same_numbers(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.5, math.nan]))

    path = f"/runs/{run_id}/series"
    response = await api.call("GET", path, params={"metric": "loss", "format": "csv"})

    assert response.headers["Content-Type"].startswith("text/csv")
    assert response.text.split() == ["step,value", "0,1.5", "1,NaN"]


async def test_a_heat_map_shows_every_layer_and_names_the_nan(api: Api) -> None:
    run_id = await api.new_run()
    stats = np.array([[1.0, 2.0], [math.nan, 3.0]], np.float32)
    await api.post(run_id, frame(1, [0.0, 0.0], stats=stats))

    found = await api.json("GET", f"/runs/{run_id}/heatmap", params={"stat": "grad_norm"})

    assert found["layers"] == ["first.weight", "last.weight"]
    assert found["values"] == [[1.0, None], [2.0, 3.0]]
    assert found["nonfinite"] == [[0, 1, 1]]


COUNTED = Layout(
    (Layer("first.weight", (2, 2)), Layer("last.weight", (2,))), ("grad_norm", "nonfinite")
)
"""What the hook sends of gradients: norms over finite elements, and how many were not."""


async def send_counted(api: Api, num_steps: int, broken_from: int, *, total: bool) -> RunId:
    """The last layer's gradient is all NaN from a step on. `total`: with the sum over layers."""
    run_id = await api.new_run()
    await api.json("PUT", f"/runs/{run_id}/layouts/{COUNTED.hash}", json=COUNTED.to_document())
    stats = np.ones((num_steps, 4), np.float32) * np.array([1, 1, 0, 0], np.float32)
    stats[broken_from:, 1], stats[broken_from:, 3] = 0.0, 2.0
    sent = frame(1, stats[:, 3].astype(np.float64), metric="nonfinite" if total else "loss")
    await api.post(run_id, replace(sent, layout_hash=COUNTED.hash, stats=stats))
    return run_id


@pytest.mark.parametrize("total", [True, False])
async def test_a_norm_that_leaves_out_all_elements_is_told_as_not_finite(
    api: Api, total: bool
) -> None:
    run_id = await send_counted(api, 4, 2, total=total)

    path = f"/runs/{run_id}/heatmap"
    fine = await api.json("GET", path, params={"stat": "grad_norm"})
    coarse = await api.json("GET", path, params={"stat": "grad_norm", "points": 1})
    broken = await api.series(run_id, layer="last.weight", stat="grad_norm")
    whole = await api.series(run_id, layer="first.weight", stat="grad_norm")

    assert fine["nonfinite"] == [[1, 2, 1], [1, 3, 1]]
    assert coarse["nonfinite"] == [[1, 0, 1]]  # of four steps at least one
    assert (broken["values"], broken["left_out"]) == ([1.0, 1.0, 0.0, 0.0], [2, 3])
    assert "left_out" not in whole


async def test_a_table_says_too_which_norms_leave_elements_out(api: Api) -> None:
    run_id = await send_counted(api, 4, 2, total=True)

    path = f"/runs/{run_id}/series"
    asked = {"stat": "grad_norm", "format": "csv"}
    broken = await api.call("GET", path, params=asked | {"layer": "last.weight"})
    whole = await api.call("GET", path, params=asked | {"layer": "first.weight"})

    assert broken.text.split() == [
        "step,value,nonfinite",
        "0,1.0,0",
        "1,1.0,0",
        "2,0.0,1",
        "3,0.0,1",
    ]
    assert whole.text.split()[0] == "step,value"


async def test_norms_of_steps_that_were_all_finite_stay_numbers(api: Api) -> None:
    run_id = await send_counted(api, 400, 300, total=True)
    asked = {"stat": "grad_norm", "points": 10}

    found = await api.json("GET", f"/runs/{run_id}/heatmap", params=asked)
    before = await api.json("GET", f"/runs/{run_id}/heatmap", params=asked | {"to": 299})

    assert [(layer, found["steps"][at]) for layer, at, _ in found["nonfinite"]] == [
        (1, step) for step in found["steps"] if step + found["step_width"] > 300
    ]
    assert before["nonfinite"] == []


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"metric": "perplexity"}, "metric_not_found"),
        ({"layer": "no.such", "stat": "grad_norm"}, "series_not_found"),
        ({"layer": "last.weight"}, "invalid_request"),
        ({"metric": "loss", "points": 0}, "invalid_request"),
    ],
)
async def test_what_cannot_be_read_is_said(api: Api, asked: dict[str, object], code: str) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0]))

    response = await api.call("GET", f"/runs/{run_id}/series", params=asked)

    assert response.status_code in (404, 422)
    assert response.json()["code"] == code


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            {"metric": "los"},
            "The run has no metric 'los' (nearest: loss). It has loss.",
        ),
        (
            {"layer": "x", "stat": "grad_norm"},
            "The run has no grad_norm of a layer 'x'. It has first.weight, last.weight.",
        ),
        (
            {"layer": "last.weight", "stat": "zero_frac"},
            "The run has no stat 'zero_frac'. It has grad_norm.",
        ),
    ],
)
async def test_a_name_that_is_not_there_is_told_beside_those_that_are(
    api: Api, asked: dict[str, str], told: str
) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0]))

    response = await api.call("GET", f"/runs/{run_id}/series", params=asked)

    assert (response.status_code, response.json()["detail"]) == (404, told)


@pytest.mark.parametrize("path", ["series?metric=loss", "heatmap?stat=grad_norm"])
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("rank=7", "The run has no rank 7. It has 0 to 1."),
        ("attempt=9", "The run has no attempt 9. It has 1."),
    ],
)
async def test_an_attempt_or_a_rank_that_is_not_there_is_told(
    api: Api, path: str, asked: str, told: str
) -> None:
    run_id = await api.new_run(world_size=2)
    await api.post(run_id, frame(1, [1.0]))

    response = await api.call("GET", f"/runs/{run_id}/{path}&{asked}")

    assert (response.status_code, response.json()["detail"]) == (404, told)


async def test_of_a_rank_that_has_sent_nothing_yet_there_is_nothing(api: Api) -> None:
    run_id = await api.new_run(world_size=2)
    await api.post(run_id, frame(1, [1.0]))

    found = await api.json("GET", f"/runs/{run_id}/series?metric=loss&rank=1")

    assert found["steps"] == []


@pytest.mark.parametrize(
    "path",
    [
        "series?metric=loss",
        "heatmap?stat=grad_norm",
        "ranks?metric=loss",
        "thresholds?metric=loss",
    ],
)
async def test_steps_that_end_before_they_begin_are_refused(api: Api, path: str) -> None:
    """An empty answer would look like that of a run which has not come so far."""
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0]))

    response = await api.call("GET", f"/runs/{run_id}/{path}&from=9&to=2")

    told = "query: found from, to as 9, 2, wanted the earlier step first"
    assert (response.status_code, response.json()["detail"]) == (422, told)


async def test_old_frames_go_and_their_rollups_answer(api: Api, hand_clock: HandClock) -> None:
    run_id = await api.new_run()
    stats = np.ones((5000, 2), np.float32)
    await send(api, run_id, losses(5000), stats=stats)
    await roll(api)
    before = await api.series(run_id, metric="loss", points=10_000)
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})

    hand_clock.now += 31 * _DAY_S
    removed = await api.services.retention.remove_due()

    assert removed.num_frames == 8
    assert await api.series(run_id, metric="loss", points=10_000) == before
    layer = {"layer": "last.weight", "stat": "grad_norm", "points": 10_000}
    assert sum((await api.series(run_id, **layer))["count"]) == 5000
    assert (await api.post(run_id, frame(1, losses(500)))).json()["duplicate"] is True


async def test_of_a_layer_s_removed_frames_the_bucket_speaks_that_the_first_step_lies_in(
    api: Api, hand_clock: HandClock
) -> None:
    run_id = await api.new_run()
    await send(api, run_id, losses(5000), stats=np.ones((5000, 2), np.float32))
    await roll(api)
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})
    hand_clock.now += 31 * _DAY_S
    await api.services.retention.remove_due()

    layer = {"layer": "last.weight", "stat": "grad_norm"}
    found = await api.series(run_id, **layer, points=10_000, **{"from": 100, "to": 1599})

    assert (found["steps"][0], found["steps"][-1]) == (64, 1536)
    assert sum(found["count"]) == 1600 - 64


@both_engines
async def test_the_frames_around_an_alert_stay_and_answer_step_by_step(
    api: Api, hand_clock: HandClock
) -> None:
    run_id = await api.new_run()
    values = losses(9000)
    values[6000] = math.nan
    await send(api, run_id, values, stats=np.ones((9000, 2), np.float32))
    await roll(api)
    await api.until_judged(run_id)
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})

    hand_clock.now += 31 * _DAY_S
    removed = await api.services.retention.remove_due()

    assert removed.num_frames == 7
    layer = {"layer": "last.weight", "stat": "grad_norm", "points": 10_000}
    near = {"from": 5000, "to": 7000}
    around = await api.series(run_id, **layer, **near)
    assert (around["step_width"], len(around["steps"])) == (1, 2001)
    assert (await api.series(run_id, **layer))["step_width"] == 64


async def test_a_metric_of_every_rank_comes_in_one_picture(api: Api) -> None:
    run_id = await api.new_run(world_size=3)
    for rank, values in ((0, [1.0, 2.0, 3.0, 4.0]), (2, [1.0, math.nan])):
        await api.post(run_id, replace(frame(1, values), rank=rank))

    asked = {"metric": "loss", "points": 2}
    found = await api.json("GET", f"/runs/{run_id}/ranks", params=asked)

    assert (found["ranks"], found["step_width"], found["steps"]) == ([0, 2], 2, [0, 2])
    assert found["values"] == [[1.5, 3.5], [1.0, None]]
    assert found["nonfinite"] == [[1, 0, 1]]
    unknown = await api.call("GET", f"/runs/{run_id}/ranks", params={"metric": "none"})
    assert unknown.status_code == 404


async def test_what_no_float32_holds_is_a_number_in_the_picture_of_ranks(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1e39, -1.7e308, 2.0]))

    found = await api.json("GET", f"/runs/{run_id}/ranks", params={"metric": "loss"})

    assert (found["values"], found["nonfinite"]) == ([[1e39, -1.7e308, 2.0]], [])
