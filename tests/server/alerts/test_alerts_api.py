"""Alerts over HTTP: found, looked at, acknowledged, streamed."""

import math
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.server.harness import Api, both_engines, frame

from runwatch.vocabulary import RunId

pytestmark = [pytest.mark.anyio, both_engines]


async def broken_run(api: Api) -> RunId:
    """A run whose loss is not finite at step 2, and whose alert is there."""
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [2.0, 2.0, math.nan]))
    await api.until_judged(run_id)
    return run_id


async def alerts(api: Api, run_id: RunId, **params: object) -> Any:
    found = await api.json("GET", "/alerts", params={"run_id": run_id, **params})
    return found["alerts"]


async def test_an_alert_shows_nan_as_nan(api: Api) -> None:
    (alert,) = await alerts(api, await broken_run(api))

    assert (alert["rule"], alert["severity"], alert["state"]) == ("NonFinite", "critical", "firing")
    assert (alert["onset_step"], alert["value"]) == (2, "NaN")


async def test_alerts_are_found_by_state(api: Api) -> None:
    run_id = await broken_run(api)

    assert len(await alerts(api, run_id, state="firing")) == 1
    assert await alerts(api, run_id, state="resolved") == []


async def test_of_a_run_it_is_said_whether_all_of_it_was_judged(api: Api) -> None:
    run_id = await broken_run(api)

    assert (await api.json("GET", "/alerts", params={"run_id": run_id}))["judged"] is True
    assert (await api.json("GET", "/alerts"))["judged"] is None
    nowhere = await api.call("GET", "/alerts", params={"run_id": "01M7ZB2DFGRYA33HQ5HCF5AQWG"})
    assert nowhere.status_code == 404


async def test_a_card_tells_what_was_proposed(api: Api) -> None:
    (alert,) = await alerts(api, await broken_run(api))
    card = await api.json("GET", f"/alerts/{alert['id']}")

    assert card["events"][0]["kind"] == "firing"
    assert card["similar"] == []
    assert card["recovery"] is None


async def test_the_first_to_acknowledge_stays_the_one(api: Api) -> None:
    (alert,) = await alerts(api, await broken_run(api))
    path = f"/alerts/{alert['id']}/ack"
    first = await api.json("POST", path, json={"note": "looking"})
    again = await api.json("POST", path, json={"note": "me too"})

    assert (first["ack_note"], again["ack_note"]) == ("looking", "looking")


async def test_who_acknowledges_need_not_say_why(api: Api) -> None:
    (alert,) = await alerts(api, await broken_run(api))

    acknowledged = await api.json("POST", f"/alerts/{alert['id']}/ack")

    assert (acknowledged["ack_note"], acknowledged["acked_at"] is None) == ("", False)


async def test_a_card_says_when_the_onset_was_as_all_times_are_said(api: Api) -> None:
    (alert,) = await alerts(api, await broken_run(api))

    card = (await api.json("GET", f"/alerts/{alert['id']}"))["card"]

    assert card["onset"]["at"] == alert["onset_at"]
    assert datetime.fromisoformat(card["onset"]["at"]).utcoffset() == timedelta(0)


async def test_a_key_of_another_project_sees_no_alert(api: Api) -> None:
    run_id = await broken_run(api)
    (alert,) = await alerts(api, run_id)
    key = await api.new_key("read", project="other")

    assert (await api.json("GET", "/alerts", key=key))["alerts"] == []
    assert (await api.call("GET", f"/alerts/{alert['id']}", key=key)).status_code == 403


async def test_what_is_judged_stands_in_the_metrics(api: Api) -> None:
    await broken_run(api)
    headers = {"Authorization": f"Bearer {api.admin_key}"}
    told = (await api.http.get("/metrics", headers=headers)).text

    assert 'runwatch_alert_transitions_total{rule="NonFinite",state="firing"} 1.0' in told
    assert "runwatch_evaluators_running 1.0" in told


@pytest.mark.parametrize("place", ["1", "-", "1-1-1", "²-1", f"{'9' * 19}-1", f"1-{'9' * 5000}"])
async def test_a_place_that_no_stream_told_is_refused(api: Api, place: str) -> None:
    run_id = await api.new_run()
    headers = {"Last-Event-ID": place.encode()}
    refused = await api.call("GET", f"/stream?run_id={run_id}", headers=headers)

    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_event_id")
