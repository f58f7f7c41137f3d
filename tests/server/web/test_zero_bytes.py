"""A zero byte in a text, and a number beyond 64 bits, are refused alike by both databases.

PostgreSQL cannot hold the one, and neither of them the other: the sender is told 422, wherever the
value stands.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import pytest
from tests.proofs import proof
from tests.server.harness import LAYOUT, Api, both_engines, frame, new_id

from runwatch.frames import Event
from runwatch.layouts import Layer, Layout

pytestmark = [pytest.mark.anyio, both_engines]

ZERO: Final = "a\0b"
SOON: Final = (datetime.now(UTC) + timedelta(days=1)).isoformat()
HUGE: Final = 2**70


def rules(name: str) -> dict[str, Any]:
    rule = {"alert": "Mine", "when": "loss > 1", "annotations": {"summary": name}}
    return {"version": 1, "groups": [{"name": "g", "rules": [rule]}]}


BODIES: Final[dict[str, tuple[str, str, object]]] = {
    "a run's name": ("POST", "/runs", {"run_id": new_id(), "name": ZERO}),
    "a run's configuration": (
        "POST",
        "/runs",
        {"run_id": new_id(), "name": "n", "config": {ZERO: 1}},
    ),
    "a run's new name": ("PATCH", "/runs/{run}", {"name": ZERO}),
    "an attempt's host": (
        *("POST", "/runs/{run}/attempts"),
        {"token": new_id(), "started_at": 1.0, "host": {"hostname": ZERO}},
    ),
    "an end's reason": (
        *("POST", "/runs/{run}/attempts/1/close"),
        {"status": "failed", "reason": ZERO},
    ),
    "a key's name": ("POST", "/keys", {"name": ZERO, "scopes": ["read"]}),
    "a rule's text": ("POST", "/rules", rules(ZERO)),
    "a rule on trial": ("POST", "/rules/backtest", {"run_id": "{run}", "rules": rules(ZERO)}),
    "a command's reason": (
        *("POST", "/runs/{run}/commands"),
        {"action": {"kind": "checkpoint"}, "reason": ZERO},
    ),
    "a silence's comment": (
        *("POST", "/silences"),
        {"matchers": [{"name": "run", "value": "x"}], "ends_at": SOON, "comment": ZERO},
    ),
    "a silence's matcher": (
        *("POST", "/silences"),
        {"matchers": [{"name": "run", "value": ZERO}], "ends_at": SOON, "comment": "c"},
    ),
    "a metric of a JSON frame": (
        *("POST", "/runs/{run}/frames"),
        {"attempt": 1, "seq": 1, "first_step": 0, "metrics": {ZERO: [1.0]}},
    ),
}


@pytest.mark.parametrize("place", BODIES)
async def test_a_zero_byte_in_a_body_is_refused(api: Api, place: str) -> None:
    run_id = await api.new_run()
    method, path, body = BODIES[place]
    reply = await api.call(
        method,
        path.format(run=run_id),
        content=msgspec.json.encode(body).replace(b"{run}", run_id.encode()),
        headers={"Content-Type": "application/json"},
    )

    assert (reply.status_code, reply.json()["code"]) == (422, "zero_byte"), reply.text


async def test_a_zero_byte_in_a_rule_file_of_yaml_is_refused(api: Api) -> None:
    text = 'version: 1\ngroups: [{name: "a\\0b", rules: [{alert: Mine, when: "loss > 1"}]}]\n'
    reply = await api.call(
        "POST", "/rules", content=text, headers={"Content-Type": "application/yaml"}
    )

    assert (reply.status_code, reply.json()["code"]) == (422, "zero_byte")


async def test_a_zero_byte_in_a_layers_name_is_refused(api: Api) -> None:
    run_id = await api.new_run()
    layout = Layout((Layer(ZERO, (2,)),), LAYOUT.stats)
    reply = await api.call(
        "PUT",
        f"/runs/{run_id}/layouts/{layout.hash}",
        content=msgspec.json.encode(layout.to_document()),
    )

    assert (reply.status_code, reply.json()["code"]) == (422, "zero_byte")


async def test_a_zero_byte_in_a_binary_frame_is_refused(api: Api) -> None:
    run_id = await api.new_run()
    sent = frame(1, [1.0])
    events = (
        Event(0, "phase", 1.7e9, {"phase": ZERO}),
        Event(0, ZERO, 1.7e9),
        Event(0, "bundle", 1.7e9, {"layers": [ZERO]}),
    )
    frames = [replace(sent, metric_names=(ZERO,)), *(replace(sent, events=(e,)) for e in events)]
    replies = [await api.post(run_id, one) for one in frames]

    assert {(reply.status_code, reply.json()["code"]) for reply in replies} == {(422, "zero_byte")}


@pytest.mark.parametrize(
    "path",
    [
        "/runs/a%00b",
        "/runs?project=a%00b",
        "/fleet?search=a%00b",
        "/alerts?rule=a%00b",
        "/alerts/a%00b",
        "/rules/a%00b",
        "/commands/a%00b",
        "/audit?run_id=a%00b",
        "/stream?run_id=a%00b",
    ],
)
async def test_a_zero_byte_in_an_address_is_refused(api: Api, path: str) -> None:
    reply = await api.call("GET", path)

    assert (reply.status_code, reply.json()["code"]) == (422, "zero_byte")


async def test_a_backslash_before_the_letters_of_a_zero_byte_is_none(api: Api) -> None:
    """`\\\\u0000` in JSON is a backslash and five characters, as in a Windows path."""
    body = rb'{"run_id": "%s", "name": "C:\\u0000"}' % new_id().encode()
    reply = await api.call("POST", "/runs", content=body)

    assert reply.json()["name"] == r"C:\u0000"


async def test_a_number_that_no_column_holds_is_refused(api: Api) -> None:
    run_id = await api.new_run()
    beat = {"attempt": 1, "rank": 0, "last_step": HUGE, "step_age_s": 0.0, "phase": "train"}
    closed = {"status": "finished", "last_step": HUGE}
    event = {
        "attempt": 1,
        "seq": 1,
        "first_step": 0,
        "events": [{"step": HUGE, "kind": "k", "at": 1.0}],
    }
    opened = {"token": new_id(), "started_at": 1.0, "resume_step": HUGE}
    replies = [
        await api.call("POST", f"/runs/{run_id}{path}", content=msgspec.json.encode(body))
        if path != "/frames"
        else await api.call("POST", f"/runs/{run_id}{path}", json=body)
        for path, body in (
            ("/heartbeat", beat),
            ("/attempts", opened),
            ("/frames", event),
            ("/attempts/1/close", closed),
        )
    ]

    statuses = [reply.status_code for reply in replies]
    assert statuses == [422, 422, 400, 422], [reply.text for reply in replies]


async def test_places_beyond_64_bits_are_refused_where_they_are_read(api: Api) -> None:
    run_id = await api.new_run()
    replies = [
        await api.call("GET", path, headers=proof(run_id))
        for path in (
            f"/audit?next_token={HUGE}",
            f"/notifications?next_token={HUGE}",
            f"/runs/{run_id}/commands/next?attempt={HUGE}&wait_s=0",
            f"/runs/{run_id}/series?metric=loss&attempt={HUGE}",
        )
    ]

    assert [reply.status_code for reply in replies] == [422] * 4
