"""What `/metrics` says of a run after a restart, beside a replica, and beside an older attempt."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.server.harness import LAYOUT, Api, Storage, both_engines, frame, new_id, serve

from runwatch.frames import Frame
from runwatch.layouts import Layer, Layout
from runwatch.vocabulary import RunState
from runwatch_server.monitoring import restoring
from runwatch_server.monitoring.run_figures import Fleet, RunFacts
from runwatch_server.monitoring.service_metrics import ServiceMetrics

pytestmark = pytest.mark.anyio


async def of_runs(api: Api) -> dict[str, float]:
    """The series of runs without their labels, of a service that has one run."""
    reply = await api.http.get("/metrics", headers={"Authorization": f"Bearer {api.admin_key}"})
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(reply.text)
        for sample in family.samples
        if sample.name.startswith("runwatch_run_")
    }


@both_engines
async def test_a_run_that_is_silent_is_shown_after_a_restart_as_before(storage: Storage) -> None:
    async with serve(storage) as api:
        run_id = await api.new_run()
        await api.put_layout(run_id, LAYOUT)
        await api.post(run_id, frame(1, [2.0, 1.5], stats=np.array([[1, 2], [3, 4]], np.float32)))
        await api.post(run_id, frame(2, [0.7], metric="val_loss", first_step=2))
        before = await of_runs(api)

    async with serve(storage, admin_key=api.admin_key) as api:
        after = await of_runs(api)

    assert after.pop("runwatch_run_last_frame_timestamp_seconds") == pytest.approx(
        before.pop("runwatch_run_last_frame_timestamp_seconds"), abs=1.0
    )
    assert after["runwatch_run_loss"] == 1.5
    assert after == before


async def test_a_run_whose_layout_is_damaged_keeps_no_service_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stats = np.array([[1, 2]], np.float32)
    async with serve(tmp_path) as api:
        damaged = await api.new_run()
        await api.post(damaged, frame(1, [2.0], stats=stats))
        whole = await api.new_run()
        await api.post(whole, frame(1, [0.5]))
    with closing(sqlite3.connect(tmp_path / "runwatch.db")) as database, database:
        database.execute("UPDATE layouts SET document = 'rotten'")

    async with serve(tmp_path, admin_key=api.admin_key) as api:
        found = await of_runs(api)

    assert found["runwatch_run_loss"] == 0.5
    (told,) = (one for one in caplog.records if "not in the metrics" in one.message)
    assert damaged in told.message


@dataclass(frozen=True, slots=True)
class Sent:
    """One run with frames of two steps: `of_layers` columns of layers, `of_metrics` in all."""

    of_layers: int
    of_metrics: int = 1


async def send(api: Api, sent: Sent) -> None:
    layout = Layout(tuple(Layer(f"l{index}") for index in range(sent.of_layers)), ("grad_norm",))
    names = ("loss", *(f"m{index}" for index in range(1, sent.of_metrics)))
    run_id = await api.new_run()
    await api.put_layout(run_id, layout)
    for seq in (1, 2):
        one = Frame(
            attempt=1,
            rank=0,
            seq=seq,
            segment=0,
            first_step=2 * seq,
            times=np.zeros(2),
            metric_names=names,
            metrics=np.full((2, len(names)), float(seq)),
            layout_hash=layout.hash,
            stats=np.full((2, sent.of_layers), seq, np.float32),
        )
        await api.post(run_id, one)


@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        (Sent(of_layers=100), {"loss", "layer_grad_norm"}),
        (Sent(of_layers=1000), {"loss"}),
        (Sent(of_layers=8, of_metrics=500), set[str]()),
    ],
    ids=["all of it", "without its layers", "nothing"],
)
async def test_a_start_unpacks_no_more_of_a_run_than_it_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: Sent, wanted: set[str]
) -> None:
    """Some kilobytes may unpack to 64 MiB, and the service answers only when it is done."""
    monkeypatch.setattr(restoring, "_RUN_BYTES", 6000)
    async with serve(tmp_path) as api:
        await send(api, sent)

    async with serve(tmp_path, admin_key=api.admin_key) as api:
        found = await of_runs(api)

    shown = {name.removeprefix("runwatch_run_") for name in found}
    assert shown & {"loss", "layer_grad_norm"} == wanted
    assert found.get("runwatch_run_loss", 2.0) == 2.0  # of the newest frame


async def test_runs_that_nobody_closed_leave_their_places_to_those_that_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "MAX_RUNS", 2)
    async with serve(tmp_path) as api:
        hangs, *lost = [await api.new_run() for _ in range(4)]
        for run_id in (hangs, *lost):
            await api.post(run_id, frame(1, [1.0]))
    with closing(sqlite3.connect(tmp_path / "runwatch.db")) as database, database:
        database.execute("UPDATE runs SET state = 'lost' WHERE id != ?", (hangs,))

    async with serve(tmp_path, admin_key=api.admin_key) as api:
        shown = api.services.metrics.runs.run_ids

    assert shown == (lost[-1], hangs)


async def test_what_an_earlier_attempt_left_does_not_replace_the_newest_values(api: Api) -> None:
    run_id = await api.new_run()
    second = await api.new_attempt(run_id)
    await api.post(run_id, frame(1, [1.0], attempt=second, first_step=500))

    await api.post(run_id, frame(1, [9.0]), late=True)

    found = await of_runs(api)
    assert (found["runwatch_run_loss"], found["runwatch_run_last_step"]) == (1.0, 500.0)


def test_a_run_that_sends_to_another_replica_is_left_to_it() -> None:
    health = ServiceMetrics()
    run_id = new_id()
    health.runs.note(run_id, frame(1, [1.0]), LAYOUT, at=0.0, late=False)
    further = RunFacts("a", "b", RunState.TRAINING, last_step=90)
    fleet = Fleet(num_by_state={}, facts={run_id: further}, alerts={})

    health.runs.refresh(fleet, now=59.0)
    assert run_id in health.runs.run_ids
    health.runs.refresh(fleet, now=61.0)
    assert run_id not in health.runs.run_ids
