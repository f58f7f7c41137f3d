"""Frames over the interface: stored once, or refused clearly with nothing changed."""

import json
import math
import zlib
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import sqlalchemy as sa
from tests.server.harness import LAYOUT, Api, Storage, both_engines, frame, new_id, serve

from runwatch import zstd
from runwatch.codec import FrameHeader, encode_frame, join_frame, split_frame
from runwatch.frames import Event, Frame, Scalar
from runwatch.vocabulary import RunId
from runwatch_server.telemetry.admission import MAX_AHEAD, MAX_UNSAID
from runwatch_server.telemetry.tables import frames

pytestmark = [pytest.mark.anyio, both_engines]


async def stored(api: Api, run_id: RunId) -> list[int]:
    async with api.services.database.read() as connection:
        query = sa.select(frames.c.seq).where(frames.c.run_id == run_id).order_by(frames.c.seq)
        return list(await connection.scalars(query))


async def refusal(api: Api, run_id: RunId, body: bytes) -> tuple[int, str]:
    """What is answered to a body that must not be stored."""
    response = await api.post_body(run_id, body)
    assert await stored(api, run_id) == []
    assert response.headers["Content-Type"] == "application/problem+json"
    return response.status_code, response.json()["code"]


def header(**changes: object) -> FrameHeader:
    found, _ = split_frame(encode_frame(frame(1, [1.0])))
    return msgspec.structs.replace(found, **changes)


async def test_an_acknowledged_frame_is_stored_to_the_bit(api: Api) -> None:
    run_id = await api.new_run()
    body = encode_frame(frame(1, [1.0, math.nan]))

    reply = (await api.post_body(run_id, body)).json()

    assert reply == {"acked": 1, "next": 2, "duplicate": False, "commands": []}
    async with api.services.database.read() as connection:
        assert await connection.scalar(sa.select(frames.c.body)) == body


@pytest.mark.parametrize(
    "wrong",
    [
        {"times": [1.7e12], "metrics": {"loss": [1.0]}},
        {"times": [-1.0], "metrics": {"loss": [1.0]}},
        {"metrics": {"loss": [1.0]}, "events": [{"step": 0, "kind": "phase", "at": 1.7e12}]},
    ],
    ids=["milliseconds", "before 1970", "an event's"],
)
async def test_a_time_that_no_calendar_has_is_refused(api: Api, wrong: dict[str, object]) -> None:
    run_id = await api.new_run()
    body = {"attempt": 1, "seq": 1, "first_step": 0} | wrong

    response = await api.call("POST", f"/runs/{run_id}/frames", json=body)

    assert response.status_code == 400
    assert "wanted Unix seconds" in response.json()["detail"]
    assert await stored(api, run_id) == []


async def test_the_same_frame_again_is_a_success_and_stored_once(api: Api) -> None:
    run_id = await api.new_run()
    body = encode_frame(frame(1, [1.0]))
    await api.post_body(run_id, body)

    reply = (await api.post_body(run_id, body)).json()

    assert (reply["acked"], reply["duplicate"]) == (1, True)
    assert await stored(api, run_id) == [1]


async def test_another_frame_under_the_same_number_is_a_conflict(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0]))

    response = await api.post(run_id, frame(1, [2.0]))

    assert (response.status_code, response.json()["code"]) == (422, "conflict")
    assert (await api.series(run_id, metric="loss"))["values"] == [1.0]


async def test_frames_may_come_in_any_order(api: Api) -> None:
    run_id = await api.new_run()

    replies = [
        (await api.post(run_id, frame(seq, [float(seq)], first_step=seq))).json()["next"]
        for seq in (3, 1, 4, 2)
    ]

    assert replies == [1, 2, 2, 5]
    assert (await api.series(run_id, metric="loss"))["values"] == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("sent", "last_step"),
    [
        ([frame(1, [1.0]), frame(3, [3.0], first_step=2), frame(2, [2.0], first_step=1)], 2),
        (
            [
                frame(1, [1.0, 2.0]),
                frame(3, [2.0], first_step=1, segment=1),
                frame(2, [3.0], first_step=2),
            ],
            1,
        ),
    ],
    ids=["a gap is filled", "from before a rollback"],
)
async def test_what_was_left_out_at_first_does_not_take_the_run_back(
    api: Api, sent: list[Frame], last_step: int
) -> None:
    run_id = await api.new_run()

    for one in sent:
        assert (await api.post(run_id, one)).status_code == 200

    assert (await api.json("GET", f"/runs/{run_id}"))["last_step"] == last_step


async def test_a_fenced_attempt_is_refused_but_its_duplicates_are_not(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0]))
    await api.new_attempt(run_id)

    again = await api.post(run_id, frame(1, [1.0]))
    new = await api.post(run_id, frame(2, [2.0], first_step=1))

    assert again.json()["duplicate"] is True
    assert (new.status_code, new.json()["code"]) == (409, "stale_attempt")
    assert await stored(api, run_id) == [1]


async def test_what_a_fenced_attempt_held_can_be_sent_late(api: Api) -> None:
    run_id = await api.new_run()
    await api.new_attempt(run_id)

    response = await api.post(run_id, frame(1, [1.0]), late=True)

    assert response.json()["acked"] == 1
    assert (await api.series(run_id, metric="loss", attempt=1))["values"] == [1.0]


async def test_an_ended_run_takes_frames_only_late(api: Api) -> None:
    run_id = await api.new_run()
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})

    live = await api.post(run_id, frame(1, [1.0]))
    late = await api.post(run_id, frame(1, [1.0]), late=True)

    assert (live.status_code, live.json()["code"]) == (409, "run_ended")
    assert late.status_code == 200


async def test_nobody_can_prove_to_be_an_attempt_that_was_never_opened(api: Api) -> None:
    run_id = await api.new_run()

    found = await refusal(api, run_id, encode_frame(frame(1, [1.0], attempt=7)))

    assert found == (403, "wrong_attempt_token")


async def test_a_run_that_is_not_there_takes_no_frame(api: Api) -> None:
    response = await api.post(new_id(), frame(1, [1.0]))

    assert (response.status_code, response.json()["code"]) == (404, "run_not_found")


async def test_an_unknown_layout_is_asked_for(api: Api) -> None:
    run_id = await api.new_run()
    _, block = split_frame(encode_frame(frame(1, [1.0], stats=np.ones((1, 2), np.float32))))
    body = join_frame(header(layout_hash="0" * 64, num_columns=2, crc32=zlib.crc32(block)), block)

    assert await refusal(api, run_id, body) == (409, "unknown_layout")


async def test_columns_that_are_not_the_layout_s_are_refused(api: Api) -> None:
    run_id = await api.new_run()

    body = encode_frame(frame(1, [1.0], stats=np.ones((1, 3), np.float32)))

    assert await refusal(api, run_id, body) == (400, "invalid_frame")


async def test_a_damaged_block_is_refused(api: Api) -> None:
    run_id = await api.new_run()
    body = bytearray(encode_frame(frame(1, [1.0])))
    body[-1] ^= 1

    assert await refusal(api, run_id, bytes(body)) == (400, "wrong_checksum")


@pytest.mark.parametrize(
    "body", [b"", b"RWF1", b"nonsense" * 9, b"RWF1\xff\xff\xff\xff", b"RWF1\x01\x00\x00\x00\xc1"]
)
async def test_a_malformed_body_is_refused(api: Api, body: bytes) -> None:
    assert await refusal(api, await api.new_run(), body) == (400, "invalid_frame")


async def test_a_header_that_declares_a_gigabyte_is_refused(api: Api) -> None:
    bomb = header(num_steps=4096, num_columns=2**16, layout_hash=LAYOUT.hash, crc32=0)

    assert await refusal(api, await api.new_run(), join_frame(bomb, b"")) == (
        413,
        "frame_too_large",
    )


async def test_a_block_that_unpacks_to_a_gigabyte_is_refused(api: Api) -> None:
    block = zstd.compress(bytes(2**30))
    assert len(block) < 2**16

    body = join_frame(header(crc32=zlib.crc32(block)), block)

    assert await refusal(api, await api.new_run(), body) == (413, "frame_too_large")


async def test_a_body_over_the_limit_is_not_read(api: Api) -> None:
    response = await api.post_body(await api.new_run(), bytes(8 * 2**20 + 1))

    assert (response.status_code, response.json()["code"]) == (413, "body_too_large")
    assert response.json()["detail"] == "body: found too many bytes, wanted at most 8388608"


async def test_another_content_type_is_refused(api: Api) -> None:
    run_id = await api.new_run()

    response = await api.call("POST", f"/runs/{run_id}/frames", content=b"x")

    assert (response.status_code, response.json()["code"]) == (415, "unsupported_type")


async def test_a_json_frame_keeps_its_nan_and_its_gap(api: Api) -> None:
    run_id = await api.new_run()
    body = {
        "attempt": 1,
        "seq": 1,
        "first_step": 10,
        "metrics": {"loss": [2.5, "NaN", "-Inf"], "val_loss": [None, 1.5, None]},
        "layout": LAYOUT.hash,
        "stats": {"grad_norm": [[1.0, 2.0], ["+Inf", 4.0], [5.0, None]]},
    }

    first = await api.json("POST", f"/runs/{run_id}/frames", json=body)
    again = await api.json("POST", f"/runs/{run_id}/frames", json=body)

    assert (first["duplicate"], again["duplicate"]) == (False, True)
    loss = await api.series(run_id, metric="loss")
    last = await api.series(run_id, layer="last.weight", stat="grad_norm")
    assert loss["values"] == [2.5, "NaN", "-Inf"]
    assert (await api.series(run_id, metric="val_loss"))["steps"] == [11]
    assert (last["steps"], last["values"]) == ([10, 11], [2.0, 4.0])


async def test_a_json_frame_with_a_fault_names_the_place(api: Api) -> None:
    run_id = await api.new_run()
    body = {"attempt": 1, "seq": 1, "first_step": 0, "metrics": {"loss": [1.0, "nan"]}}

    response = await api.call("POST", f"/runs/{run_id}/frames", json=body)

    assert response.status_code == 400
    assert "metrics.loss" in response.json()["detail"]
    assert await stored(api, run_id) == []


async def test_a_layout_is_kept_under_its_own_hash_only(api: Api) -> None:
    run_id = await api.new_run()
    document = json.loads(msgspec.json.encode(LAYOUT.to_document()))

    response = await api.call("PUT", f"/runs/{run_id}/layouts/{'0' * 64}", json=document)

    assert (response.status_code, response.json()["code"]) == (422, "wrong_hash")


async def test_events_come_out_in_order_and_checkpoints_become_good(api: Api) -> None:
    run_id = await api.new_run()
    path: dict[str, Scalar | list[str]] = {"path": "ckpts/9.pt"}
    events = (
        Event(9, "checkpoint", 1.7e9, path),
        Event(14, "phase", 1.7e9, {"phase": "eval"}),
        Event(19, "checkpoint_good", 1.7e9, path),
    )
    await api.post(run_id, frame(1, [], first_step=9, events=events))

    timeline = await api.json("GET", f"/runs/{run_id}/timeline", params={"limit": 2})
    rest = await api.json(
        "GET", f"/runs/{run_id}/timeline", params={"next_token": timeline["next_token"]}
    )
    found = await api.json("GET", f"/runs/{run_id}/checkpoints")

    kinds = [event["kind"] for event in timeline["events"] + rest["events"]]
    assert kinds == ["checkpoint", "phase", "checkpoint_good"]
    assert [(c["step"], c["path"], c["good"]) for c in found["checkpoints"]] == [
        (9, "ckpts/9.pt", True)
    ]


async def test_a_checkpoint_of_several_files_is_listed(api: Api) -> None:
    run_id = await api.new_run()
    detail: dict[str, Scalar | list[str]] = {"path": ["ckpts/9-0.pt", "ckpts/9-1.pt"]}
    events = (Event(9, "checkpoint", 1.7e9, detail), Event(19, "checkpoint_good", 1.7e9, detail))
    await api.post(run_id, frame(1, [], first_step=9, events=events))

    (found,) = (await api.json("GET", f"/runs/{run_id}/checkpoints"))["checkpoints"]

    assert (found["path"], found["good"]) == (detail["path"], True)


async def test_a_restart_forgets_nothing(storage: Storage) -> None:
    async with serve(storage) as first:
        key, run_id = first.admin_key, await first.new_run()
        await first.post(run_id, frame(1, [1.0]))

    async with serve(storage, admin_key=key) as second:
        again = await second.post(run_id, frame(1, [1.0]))
        await second.post(run_id, frame(2, [2.0], first_step=1))

        assert again.json()["duplicate"] is True
        assert (await second.series(run_id, metric="loss"))["values"] == [1.0, 2.0]


async def test_a_number_far_off_is_refused_and_does_no_harm(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0]))

    far = await api.post(run_id, frame(MAX_UNSAID + 2, [1.0], first_step=1))
    after = await api.post(run_id, frame(2, [1.0], first_step=1))

    assert (far.status_code, far.json()["code"]) == (422, "seq_too_far")
    assert after.json()["next"] == 3


async def test_a_number_far_off_is_taken_from_a_sender_that_says_what_is_lost(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0]))
    far = frame(90_000, [1.0], first_step=90_000)

    said = await api.post(run_id, replace(far, lost=89_998))
    further = replace(far, seq=2 * MAX_AHEAD, lost=2 * MAX_AHEAD - 1)
    beyond = await api.post(run_id, further)

    assert said.status_code == 200
    assert (await api.post(run_id, far)).json()["duplicate"] is True
    assert (beyond.status_code, beyond.json()["code"]) == (422, "seq_too_far")
