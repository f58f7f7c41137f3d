"""Silences over the API: who may make one, what is refused, and that it stands in the audit."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.server.harness import Api, HandClock

pytestmark = pytest.mark.anyio


def a_silence(clock: HandClock, **facts: object) -> dict[str, Any]:
    ends_at = datetime.fromtimestamp(clock.now + 3600, UTC).isoformat()
    matchers = [{"name": "alertname", "value": "Gradient*"}]
    return {"matchers": matchers, "ends_at": ends_at, "comment": "known", **facts}


async def test_a_silence_is_listed_until_it_is_ended(api: Api, hand_clock: HandClock) -> None:
    made = await api.json("POST", "/silences", json=a_silence(hand_clock))
    assert made["active"] is True
    assert made["author"].startswith("key:")
    assert [one["id"] for one in (await api.json("GET", "/silences"))["silences"]] == [made["id"]]

    ended = await api.json("DELETE", f"/silences/{made['id']}")

    assert ended["active"] is False
    assert (await api.json("GET", "/silences"))["silences"] == []


async def test_making_and_ending_stand_in_the_audit(api: Api, hand_clock: HandClock) -> None:
    made = await api.json("POST", "/silences", json=a_silence(hand_clock))
    await api.json("DELETE", f"/silences/{made['id']}")

    deeds = (await api.json("GET", "/audit"))["deeds"]
    told = [(deed["deed"], deed["subject"]) for deed in deeds][:2]
    assert told == [("silence_ended", made["id"]), ("silence_created", made["id"])]


@pytest.mark.parametrize(
    "fault",
    [{"matchers": []}, {"comment": ""}, {"ends_at": "2001-01-01T00:00:00Z"}, {"colour": "red"}],
)
async def test_a_silence_that_makes_no_sense_is_refused(
    api: Api, hand_clock: HandClock, fault: dict[str, object]
) -> None:
    response = await api.call("POST", "/silences", json=a_silence(hand_clock, **fault))

    assert response.status_code == 422


async def test_a_key_of_one_project_silences_that_project_alone(
    api: Api, hand_clock: HandClock
) -> None:
    key = await api.new_key("read", "control", project="mine")
    everybody_s = await api.json("POST", "/silences", json=a_silence(hand_clock))
    mine = await api.json("POST", "/silences", json=a_silence(hand_clock), key=key)

    assert mine["project"] == "mine"
    refused = await api.call("DELETE", f"/silences/{everybody_s['id']}", key=key)
    assert refused.status_code == 403


async def test_a_reader_may_not_silence(api: Api, hand_clock: HandClock) -> None:
    key = await api.new_key("read")

    response = await api.call("POST", "/silences", json=a_silence(hand_clock), key=key)

    assert response.status_code == 403
