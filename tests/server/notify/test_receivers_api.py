"""Receivers over the interface: by name, and tried."""

import pytest
from tests.server.harness import Api
from tests.server.notify.sink import Sink

pytestmark = pytest.mark.anyio


async def test_a_test_arrives_and_stands_in_the_audit(told: Api, sink: Sink) -> None:
    answer = await told.json("POST", "/receivers/team/test")

    assert answer == {"delivered": True, "error": None}
    (body,) = sink.bodies
    assert body["title"] == "[test] Runwatch reaches you"
    deeds = (await told.json("GET", "/audit"))["deeds"]
    assert (deeds[0]["deed"], deeds[0]["subject"]) == ("receiver_tested", "team")


async def test_a_refusal_is_told_and_nothing_of_its_text(told: Api, sink: Sink) -> None:
    sink.answer = lambda _: 500

    answer = await told.json("POST", "/receivers/team/test")

    assert answer == {"delivered": False, "error": "it answered with the status 500"}


async def test_receivers_are_listed_without_their_addresses(told: Api, sink: Sink) -> None:
    answer = await told.call("GET", "/receivers")

    (receiver,) = answer.json()["receivers"]
    assert receiver["name"] == "team"
    assert str(sink.port) not in answer.text


async def test_an_unknown_receiver_is_not_found(told: Api) -> None:
    answer = await told.call("POST", "/receivers/nobody/test")

    assert (answer.status_code, answer.json()["code"]) == (404, "receiver_not_found")


async def test_a_key_of_one_project_sends_none(told: Api) -> None:
    theirs = await told.new_key("admin", project="theirs")

    answer = await told.call("POST", "/receivers/team/test", key=theirs)

    assert answer.status_code == 403
