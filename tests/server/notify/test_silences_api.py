"""Silences over the API: who may make one, what is refused, and that it stands in the audit."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from tests.server.harness import Api, HandClock, frame

from runwatch_server.notify.tables import silences

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

    ended = await api.call("DELETE", f"/silences/{made['id']}")

    assert ended.status_code == 204
    assert (await api.json("GET", "/silences"))["silences"] == []


async def test_making_and_ending_stand_in_the_audit(api: Api, hand_clock: HandClock) -> None:
    made = await api.json("POST", "/silences", json=a_silence(hand_clock))
    await api.call("DELETE", f"/silences/{made['id']}")

    deeds = (await api.json("GET", "/audit"))["deeds"]
    told = [(deed["deed"], deed["subject"]) for deed in deeds][:2]
    assert told == [("silence_ended", made["id"]), ("silence_created", made["id"])]
    assert deeds[1]["detail"]["ends_at"] == made["ends_at"]
    assert deeds[1]["detail"]["comment"] == "known"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"matchers": []}, "$.matchers"),
        ({"comment": ""}, "$.comment"),
        ({"ends_at": "2001-01-01T00:00:00Z"}, "ends_at: found 2001-01-01T00:00:00+00:00, wanted"),
        (
            {"starts_at": "0001-01-01T00:00:00+14:00"},
            "starts_at: found 0001-01-01T00:00:00+14:00, wanted a time to come, or",
        ),
        (
            {"ends_at": "9999-12-31T23:59:59-12:00"},
            "ends_at: found 9999-12-31T23:59:59-12:00, wanted a time to come",
        ),
        ({"colour": "red"}, "unknown field `colour`"),
    ],
)
async def test_a_silence_that_makes_no_sense_is_refused(
    api: Api, hand_clock: HandClock, fault: dict[str, object], words: str
) -> None:
    response = await api.call("POST", "/silences", json=a_silence(hand_clock, **fault))

    assert response.status_code == 422
    assert words in response.json()["detail"]


async def test_a_key_of_one_project_silences_that_project_alone(
    api: Api, hand_clock: HandClock
) -> None:
    key = await api.new_key("read", "control", project="mine")
    everybody_s = await api.json("POST", "/silences", json=a_silence(hand_clock))
    mine = await api.json("POST", "/silences", json=a_silence(hand_clock), key=key)

    assert (everybody_s["project"], mine["project"]) == (None, "mine")
    refused = await api.call("DELETE", f"/silences/{everybody_s['id']}", key=key)
    assert refused.status_code == 403


async def test_a_reader_may_not_silence(api: Api, hand_clock: HandClock) -> None:
    key = await api.new_key("read")

    response = await api.call("POST", "/silences", json=a_silence(hand_clock), key=key)

    assert response.status_code == 403


async def test_a_long_list_is_told_in_parts_that_hold_each_silence_once(
    api: Api, hand_clock: HandClock
) -> None:
    made = [await api.json("POST", "/silences", json=a_silence(hand_clock)) for _ in range(5)]

    first = await api.json("GET", "/silences", params={"limit": 3})
    token = first["next_token"]
    second = await api.json("GET", "/silences", params={"limit": 3, "next_token": token})

    shown = [one["id"] for one in first["silences"] + second["silences"]]
    assert sorted(shown) == sorted(one["id"] for one in made)
    assert second["next_token"] is None


async def test_a_project_has_so_many_silences_that_are_not_over(
    api: Api, hand_clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runwatch_server.notify.silences.MAX_SILENCES", 2)
    key = await api.new_key("read", "control", project="mine")
    made = [
        await api.json("POST", "/silences", json=a_silence(hand_clock), key=key) for _ in range(2)
    ]
    refused = await api.call("POST", "/silences", json=a_silence(hand_clock), key=key)
    assert (refused.status_code, refused.json()["code"]) == (422, "too_many_silences")
    assert "found 2 silences of project 'mine'" in refused.json()["detail"]
    await api.json("POST", "/silences", json=a_silence(hand_clock))  # of every project

    await api.call("DELETE", f"/silences/{made[0]['id']}", key=key)
    await api.json("POST", "/silences", json=a_silence(hand_clock), key=key)


def a_window(clock: HandClock, *, in_s: float) -> dict[str, Any]:
    """One that opens each day, for an hour, from so many seconds on."""
    opens = datetime.fromtimestamp(clock.now + in_s, UTC)
    recurs = {"cron": f"{opens.minute} {opens.hour} * * *", "for_s": 3600}
    return {**a_silence(clock), "recurs": recurs, "ends_at": None}


async def test_a_window_that_recurs_is_open_each_day_and_shut_between(
    api: Api, hand_clock: HandClock
) -> None:
    made = await api.json("POST", "/silences", json=a_window(hand_clock, in_s=7200))
    activity = [made["active"]]
    for hours in (2, 2, 22):
        hand_clock.now += hours * 3600
        (listed,) = (await api.json("GET", "/silences"))["silences"]
        activity.append(listed["active"])

    assert activity == [False, True, False, True]
    assert made["recurs"]["timezone"] == "UTC"
    assert datetime.fromisoformat(made["next_at"]).timestamp() <= hand_clock.now


async def test_one_that_was_ended_opens_no_more(api: Api, hand_clock: HandClock) -> None:
    made = await api.json("POST", "/silences", json=a_window(hand_clock, in_s=0))
    ended = await api.call("DELETE", f"/silences/{made['id']}")

    assert ended.status_code == 204
    assert (await api.json("GET", "/silences"))["silences"] == []


async def test_a_replica_of_the_version_before_takes_a_window_for_no_silence_at_all(
    api: Api, hand_clock: HandClock
) -> None:
    """It does not know of recurrence, and would hold everything back for ten years."""
    await api.json("POST", "/silences", json=a_window(hand_clock, in_s=0))
    async with api.services.database.read() as connection:
        ((starts_at, ends_at),) = await connection.execute(
            sa.select(silences.c.starts_at, silences.c.ends_at)
        )

    assert starts_at == ends_at


@pytest.mark.parametrize(
    ("recurs", "code"),
    [
        ({"cron": "0 2 * * 6", "for_s": 3600}, "invalid_recurrence"),
        ({"cron": "0 2 * * *", "for_s": 3600, "timezone": "Nowhere"}, "invalid_recurrence"),
        ({"cron": "0 2 * * *", "for_s": 1}, None),
        (None, "invalid_silence"),
    ],
)
async def test_a_window_that_cannot_be_is_refused(
    api: Api, hand_clock: HandClock, recurs: object, code: str | None
) -> None:
    body = {**a_silence(hand_clock), "ends_at": None, "recurs": recurs}
    refused = await api.call("POST", "/silences", json=body)

    assert refused.status_code == 422
    assert code in (None, refused.json()["code"])


@pytest.mark.parametrize(
    "starts_at",
    ["9999-12-31T00:00:00+00:00", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"],
)
async def test_a_window_that_begins_in_a_far_age_is_refused(
    api: Api, hand_clock: HandClock, starts_at: str
) -> None:
    body = {**a_window(hand_clock, in_s=0), "starts_at": starts_at}
    refused = await api.call("POST", "/silences", json=body)

    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_silence")
    assert refused.json()["detail"].startswith(f"starts_at: found {starts_at}, wanted")


async def test_a_label_that_no_alert_has_is_refused_with_the_nearest(
    api: Api, hand_clock: HandClock
) -> None:
    matchers = [{"name": "run", "value": "a*"}, {"name": "severty", "value": "*"}]

    response = await api.call("POST", "/silences", json=a_silence(hand_clock, matchers=matchers))

    assert (response.status_code, response.json()["code"]) == (422, "unknown_label")
    said = response.json()["detail"]
    assert said.startswith("matchers[1].name: found 'severty' (nearest: severity), wanted a label")


async def test_a_label_of_a_rule_is_known(api: Api, hand_clock: HandClock) -> None:
    labels = {"team": "vision"}
    rule = {"alert": "Big", "scope": "run", "when": "loss > 5", "labels": labels}
    rules = {"version": 1, "groups": [{"name": "mine", "rules": [rule]}]}
    await api.json("POST", "/rules", json=rules)

    matchers = [{"name": "team", "value": "vision"}]
    made = await api.json("POST", "/silences", json=a_silence(hand_clock, matchers=matchers))

    assert made["num_matching"] == 0


async def test_a_new_silence_says_how_many_open_alerts_it_matches(
    api: Api, hand_clock: HandClock
) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [math.nan]))
    await api.until_judged(run_id)

    numbers = [
        (await api.json("POST", "/silences", json=a_silence(hand_clock, matchers=[matcher])))[
            "num_matching"
        ]
        for matcher in ({"name": "rule", "value": "NonF*"}, {"name": "rule", "value": "Nofinite"})
    ]

    assert numbers == [1, 0]
