"""A person's hand on a run, and the trainer's ear, over HTTP."""

import asyncio
from typing import Any

import pytest
from tests.server.harness import Api, HandClock, both_engines

pytestmark = [pytest.mark.anyio, both_engines]

CHECKPOINT = {"action": {"kind": "checkpoint"}, "reason": "before the maintenance"}


async def order(api: Api, run_id: str, **headers: str) -> Any:
    path = f"/runs/{run_id}/commands"
    return await api.json("POST", path, json=CHECKPOINT, headers=headers)


async def next_commands(api: Api, run_id: str, *, rank: int = 0, wait_s: float = 0) -> Any:
    params = {"attempt": 1, "rank": rank, "wait_s": wait_s}
    reply = await api.json("GET", f"/runs/{run_id}/commands/next", params=params)
    return reply["commands"]


async def answer(api: Api, command: Any, state: str, **facts: object) -> Any:
    receipt = {"command_id": command["id"], "attempt": 1, "rank": 0, "state": state, "step": 7}
    return await api.call("POST", f"/commands/{command['id']}/receipt", json=receipt | facts)


async def close(api: Api, run_id: str) -> None:
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})


async def test_a_command_is_told_until_it_is_answered(api: Api) -> None:
    run_id = await api.new_run()
    command = await order(api, run_id)

    assert [told["id"] for told in await next_commands(api, run_id)] == [command["id"]]
    assert [told["id"] for told in await next_commands(api, run_id)] == [command["id"]]
    await answer(api, command, "applied")
    assert await next_commands(api, run_id) == []


async def test_a_long_poll_is_answered_when_a_command_is_queued(api: Api) -> None:
    run_id = await api.new_run()
    poll = asyncio.create_task(next_commands(api, run_id, wait_s=30))
    command = await order(api, run_id)

    assert [told["id"] for told in await poll] == [command["id"]]


async def test_each_thing_that_happens_to_a_command_is_written_down(api: Api) -> None:
    run_id = await api.new_run()
    command = await order(api, run_id)
    await next_commands(api, run_id)
    await api.services.delivery.stop()
    await answer(api, command, "applied", detail={"path": "ckpt/7"})

    story = await api.json("GET", f"/commands/{command['id']}")
    assert [event["kind"] for event in story["events"]] == [
        "queued",
        "delivered",
        "receipt",
        "applied",
    ]
    assert (story["state"], story["ended_step"]) == ("applied", 7)
    assert story["detail"] == {"path": "ckpt/7"}


async def test_a_command_is_applied_once_every_rank_has_applied_it(api: Api) -> None:
    run_id = await api.new_run(world_size=2)
    command = await order(api, run_id)
    await answer(api, command, "applied")

    assert (await api.json("GET", f"/commands/{command['id']}"))["state"] == "accepted"
    await answer(api, command, "applied", rank=1, step=7, detail={"path": "ckpt/7/rank-00001"})
    story = await api.json("GET", f"/commands/{command['id']}")

    assert story["state"] == "applied"
    assert [(one["rank"], one["state"], one["detail"]) for one in story["receipts"]] == [
        (0, "applied", {}),
        (1, "applied", {"path": "ckpt/7/rank-00001"}),
    ]


async def test_one_rank_that_failed_is_named_and_the_command_has_failed(api: Api) -> None:
    run_id = await api.new_run(world_size=2)
    command = await order(api, run_id)
    await answer(api, command, "applied")
    await answer(api, command, "failed", rank=1, detail={"error": "the disk is full"})

    story = await api.json("GET", f"/commands/{command['id']}")
    assert (story["state"], story["detail"]) == ("failed", {"error": "the disk is full"})
    assert [one["state"] for one in story["receipts"]] == ["applied", "failed"]


async def test_a_late_answer_counts_among_the_ranks_of_its_own_attempt(api: Api) -> None:
    """Two of four ranks are no majority of a job that goes on with two."""
    run_id = await api.new_run(world_size=4)
    command = await order(api, run_id)
    await answer(api, command, "applied")
    await api.new_attempt(run_id, world_size=2)
    await answer(api, command, "applied", rank=1)

    assert (await api.json("GET", f"/commands/{command['id']}"))["state"] != "applied"


async def test_the_page_counts_a_command_s_ranks_by_its_own_attempt(api: Api) -> None:
    run_id = await api.new_run(world_size=2)
    command = await order(api, run_id)
    await answer(api, command, "applied")
    await answer(api, command, "applied", rank=1)
    await api.new_attempt(run_id, world_size=4)

    headers = {"Authorization": f"Bearer {api.admin_key}"}
    page = await api.http.get(f"/runs/{run_id}/actions", headers=headers)

    assert "2 of 2 ranks" in page.text


async def test_an_answer_of_a_rank_that_the_attempt_does_not_have_is_refused(api: Api) -> None:
    run_id = await api.new_run(world_size=2)
    command = await order(api, run_id)
    reply = await answer(api, command, "applied", rank=2)

    assert (reply.status_code, reply.json()["code"]) == (422, "wrong_rank")


async def test_the_same_idempotency_key_gives_the_same_command(api: Api) -> None:
    run_id = await api.new_run()
    first = await order(api, run_id, **{"Idempotency-Key": "once"})
    again = await order(api, run_id, **{"Idempotency-Key": "once"})

    assert again["id"] == first["id"]


async def test_the_same_idempotency_key_gives_the_command_that_the_run_has_obeyed_and_ended_by(
    api: Api,
) -> None:
    run_id = await api.new_run()
    first = await order(api, run_id, **{"Idempotency-Key": "once"})
    await answer(api, first, "applied")
    await close(api, run_id)
    again = await order(api, run_id, **{"Idempotency-Key": "once"})

    assert (again["id"], again["state"]) == (first["id"], "applied")


async def test_a_receipt_sent_twice_counts_once(api: Api) -> None:
    run_id = await api.new_run()
    command = await order(api, run_id)
    await answer(api, command, "applied")
    again = await answer(api, command, "failed")

    assert (again.status_code, again.json()["state"]) == (200, "applied")


async def test_a_command_for_a_finished_run_is_refused_and_says_why(api: Api) -> None:
    run_id = await api.new_run()
    await close(api, run_id)
    refused = await api.call("POST", f"/runs/{run_id}/commands", json=CHECKPOINT)

    assert (refused.status_code, refused.json()["code"]) == (409, "run_ended")


async def test_an_action_that_makes_no_sense_is_refused_with_its_place(api: Api) -> None:
    run_id = await api.new_run()
    body = {"action": {"kind": "lower_lr", "scale": 2.0}}
    refused = await api.call("POST", f"/runs/{run_id}/commands", json=body)

    assert refused.status_code == 422
    assert "scale: found 2.0" in refused.json()["detail"]


async def test_a_command_that_nobody_took_in_time_expires(api: Api, hand_clock: HandClock) -> None:
    run_id = await api.new_run()
    command = await order(api, run_id)
    hand_clock.now += 601
    assert await next_commands(api, run_id) == []

    await api.services.commands.expire_due()
    story = await api.json("GET", f"/commands/{command['id']}")
    assert story["state"] == "expired"


async def test_a_new_attempt_does_not_obey_the_commands_of_the_old_one(api: Api) -> None:
    run_id = await api.new_run()
    command = await order(api, run_id)
    await api.new_attempt(run_id)
    await api.services.commands.expire_due()

    story = await api.json("GET", f"/commands/{command['id']}")
    assert (story["state"], story["detail"]["reason"]) == ("expired", "attempt 1 is over")


async def test_cancelling_keeps_it_from_the_trainer(api: Api) -> None:
    run_id = await api.new_run()
    command = await order(api, run_id)
    await api.json("POST", f"/commands/{command['id']}/cancel")

    assert await next_commands(api, run_id) == []


async def test_it_is_too_late_to_cancel_what_is_accepted(api: Api) -> None:
    run_id = await api.new_run()
    command = await order(api, run_id)
    await answer(api, command, "accepted")
    refused = await api.call("POST", f"/commands/{command['id']}/cancel")

    assert (refused.status_code, refused.json()["code"]) == (409, "too_late")


async def test_a_trainer_s_key_commands_nothing(api: Api) -> None:
    run_id = await api.new_run()
    key = await api.new_key("ingest")
    refused = await api.call("POST", f"/runs/{run_id}/commands", key=key, json=CHECKPOINT)

    assert refused.status_code == 403


async def test_a_key_of_another_project_sees_no_command(api: Api) -> None:
    run_id = await api.new_run()
    command = await order(api, run_id)
    key = await api.new_key("control", project="other")
    refused = await api.call("POST", f"/commands/{command['id']}/cancel", key=key)

    assert refused.status_code == 403


async def test_who_ordered_it_stands_in_the_audit(api: Api) -> None:
    run_id = await api.new_run()
    command = await order(api, run_id)
    deeds = (await api.json("GET", "/audit", params={"run_id": run_id}))["deeds"]

    assert [(deed["deed"], deed["subject"]) for deed in deeds] == [
        ("command_queued", command["id"])
    ]


async def test_a_long_poll_is_answered_when_the_attempt_closes(api: Api) -> None:
    """Another one, which began before it, would else be the first whose time is up."""
    other_id, run_id = await api.new_run(), await api.new_run()
    other = asyncio.create_task(next_commands(api, other_id, wait_s=30))
    poll = asyncio.create_task(next_commands(api, run_id, wait_s=30))
    await next_commands(api, run_id)  # asked after both: by then they wait

    await close(api, run_id)
    done, _ = await asyncio.wait({other, poll}, return_when=asyncio.FIRST_COMPLETED)

    assert done == {poll}
    assert await poll == []
    await close(api, other_id)
    await other
