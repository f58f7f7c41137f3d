"""What `/readyz` tells at once of judging, long before anybody is turned away."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.server.harness import Api

from runwatch_server.alerts.evaluation.evaluators import Evaluators

pytestmark = pytest.mark.anyio


async def test_a_service_whose_judging_is_behind_or_stuck_is_ready_and_says_so(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = replace(api.services.evaluators.health, num_waiting=812, busy_s=42.5)
    monkeypatch.setattr(Evaluators, "health", stuck)

    ready = await api.http.get("/readyz")

    assert ready.status_code == 200
    assert (ready.json()["frames_waiting"], ready.json()["judging_s"]) == (812, 42.5)


async def test_a_service_that_does_not_look_for_silence_says_since_when(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(api.services.ticker), "age_s", 12.25)

    assert (await api.http.get("/readyz")).json()["silence_judged_s"] == 12.25


async def test_runs_that_are_not_judged_are_counted_for_all_and_named_for_their_readers(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = await api.new_run(project="ours"), await api.new_run(project="theirs")
    failing = replace(api.services.evaluators.health, failing_runs=(ours, theirs))
    monkeypatch.setattr(Evaluators, "health", failing)
    keys = {
        "": [],
        "runwatch_wrong": [],
        await api.new_key("ingest"): [],
        await api.new_key("read", project="ours"): [ours],
        await api.new_key("read"): [ours, theirs],
    }

    for key, named in keys.items():
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        ready = await api.http.get("/readyz", headers=headers)

        assert ready.status_code == 200
        assert ready.json()["num_runs_not_judged"] == 2
        assert ready.json()["runs_not_judged"] == named


async def test_a_database_that_was_deleted_is_named_before_all_that_waits_for_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(api.services.ticker), "age_s", 600.0)
    Path(api.services.database.place).unlink()

    ready = await api.http.get("/readyz")

    assert (ready.status_code, ready.json()["code"]) == (503, "database_dead")
    assert "The database (sqlite) is gone" in ready.json()["detail"]
