"""Histograms in and out: exact, by step and layer, and bounded."""

import numpy as np
import pytest
from tests.server.harness import Api, HandClock, both_engines, frame

from runwatch.frames import Frame
from runwatch.histograms import FIRST_EXPONENT, NUM_BINS, HistogramKind, pack_histograms
from runwatch.vocabulary import RunId
from runwatch_server.telemetry import histogram_store
from runwatch_server.telemetry.histogram_store import remove_crowded_histograms

pytestmark = pytest.mark.anyio


def with_histograms(seq: int, step: int, value: int, *, segment: int = 0) -> Frame:
    """A frame of one step; `value` elements of "w" lie in [2^-40, 2^-39)."""
    counts = np.zeros((2, NUM_BINS), np.int64)
    counts[0, FIRST_EXPONENT] = value
    counts[1] = np.arange(NUM_BINS)
    parts = pack_histograms(step, HistogramKind.GRADIENTS, ("w", "b"), counts)
    plain = frame(seq, [1.0], first_step=step, segment=segment)
    return Frame(
        attempt=1, rank=0, seq=seq, segment=segment, first_step=step, times=plain.times,
        metric_names=plain.metric_names, metrics=plain.metrics, histograms=tuple(parts),
    )  # fmt: skip


async def asked(api: Api, run_id: RunId, **params: object) -> list[tuple[int, int]]:
    """Step and first count of each histogram of "w"."""
    path = f"/runs/{run_id}/histograms"
    found = await api.json("GET", path, params={"kind": "gradients", "layer": "w"} | params)
    return [(one["step"], one["counts"][0]) for one in found["histograms"]]


@both_engines
async def test_the_newest_at_or_before_a_step_is_found(api: Api) -> None:
    run_id = await api.new_run()
    for seq, step in enumerate((10, 20, 30), 1):
        assert (await api.post(run_id, with_histograms(seq, step, step))).status_code == 200

    assert await asked(api, run_id) == [(30, 30)]
    assert await asked(api, run_id, step=29) == [(20, 20)]
    assert await asked(api, run_id, step=9) == []
    assert await asked(api, run_id, steps=2) == [(20, 20), (30, 30)]
    assert await asked(api, run_id, layer="nobody") == []
    assert await asked(api, run_id, kind="weights") == []


async def test_each_bin_is_told(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, with_histograms(1, 0, 5))

    params = {"kind": "gradients", "layer": "b"}
    found = await api.json("GET", f"/runs/{run_id}/histograms", params=params)

    (one,) = found["histograms"]
    assert (one["zeros"], one["below"], one["above"], one["nonfinite"]) == (0, 1, 82, 83)
    assert one["counts"] == list(range(2, 82))
    assert found["lowest_exponent"] == -40


async def test_a_frame_that_comes_twice_is_a_success_and_its_numbers_are_read_as_ever(
    api: Api,
) -> None:
    run_id = await api.new_run()
    sent = with_histograms(1, 0, 5)

    first, again = await api.post(run_id, sent), await api.post(run_id, sent)

    assert (first.json()["duplicate"], again.json()["duplicate"]) == (False, True)
    assert (await api.series(run_id, metric="loss"))["values"] == [1.0]
    assert await asked(api, run_id) == [(0, 5)]


async def test_of_a_step_trained_twice_the_newest_counts(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, with_histograms(1, 10, 1))
    await api.post(run_id, with_histograms(2, 10, 2, segment=1))

    assert await asked(api, run_id) == [(10, 2)]


@both_engines
async def test_only_so_many_steps_of_a_run_are_kept(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histogram_store, "MAX_STEPS", 2)
    run_id = await api.new_run()
    for seq, step in enumerate((10, 20, 30), 1):
        await api.post(run_id, with_histograms(seq, step, step))

    assert await remove_crowded_histograms(api.services.database) == 1
    assert await asked(api, run_id, steps=10) == [(20, 20), (30, 30)]


async def test_those_of_a_run_that_ended_long_ago_go(api: Api, hand_clock: HandClock) -> None:
    run_id = await api.new_run()
    await api.post(run_id, with_histograms(1, 10, 1))
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})

    hand_clock.now += 31 * 86_400
    assert (await api.services.retention.remove_due()).num_histograms == 1
    assert await asked(api, run_id) == []
