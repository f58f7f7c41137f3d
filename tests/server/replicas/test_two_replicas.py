"""Two services on one database: whichever a trainer or a person speaks to, it is the same."""

import asyncio
import itertools
import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml
from tests.proofs import token_of
from tests.server.harness import Api, Storage, frame, serve
from tests.server.notify.sink import running_sink
from tests.waiting import LONGEST_S, until_told

from runwatch.vocabulary import RunId

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]


@pytest.fixture
async def replicas(tmp_path: Path, postgres_url: str) -> AsyncIterator[tuple[Api, Api]]:
    async with (
        serve(Storage(tmp_path / "first", postgres_url)) as first,
        serve(Storage(tmp_path / "second", postgres_url), admin_key=first.admin_key) as second,
    ):
        yield first, second


async def alerts(api: Api, run_id: RunId) -> list[tuple[str, str]]:
    found = await api.json("GET", f"/alerts?run_id={run_id}")
    return [(alert["rule"], alert["state"]) for alert in found["alerts"]]


async def test_frames_of_one_stream_may_go_to_either(replicas: tuple[Api, Api]) -> None:
    first, second = replicas
    run_id = await first.new_run()

    for seq in range(1, 21):
        answer = await replicas[seq % 2].post(run_id, frame(seq, [1.0] * 4, first_step=4 * seq))
        assert answer.json()["acked"] == seq
    answer = await second.post(run_id, frame(21, [math.nan], first_step=84))

    async def is_told() -> bool:
        return await alerts(first, run_id) == [("NonFinite", "firing")]

    assert answer.json()["next"] == 22
    await until_told(is_told)
    assert await alerts(second, run_id) == [("NonFinite", "firing")]


async def test_a_frame_sent_to_both_is_stored_once(replicas: tuple[Api, Api]) -> None:
    run_id = await replicas[0].new_run()
    sent = [frame(seq, [1.0], first_step=seq - 1) for seq in range(1, 21)]

    answers = await asyncio.gather(*(api.post(run_id, one) for one in sent for api in replicas))

    assert [answer.status_code for answer in answers] == [200] * 40
    assert sum(answer.json()["duplicate"] for answer in answers) == 20


async def test_a_command_reaches_the_trainer_at_the_other_replica(
    replicas: tuple[Api, Api],
) -> None:
    first, second = replicas
    run_id = await first.new_run()
    await first.json("POST", f"/runs/{run_id}/attempts", json={"token": token_of(run_id, 2)} | LIVE)
    poll = f"/runs/{run_id}/commands/next?attempt=2&rank=0&wait_s=25"
    waiting = asyncio.create_task(first.json("GET", poll))
    await asyncio.sleep(0)

    order = {"action": {"kind": "checkpoint"}}
    await second.json("POST", f"/runs/{run_id}/commands", json=order)

    (told,) = (await waiting)["commands"]
    assert told["action"]["kind"] == "checkpoint"


async def test_rules_that_one_replica_changed_are_in_force_at_the_other(
    replicas: tuple[Api, Api],
) -> None:
    first, second = replicas
    run_id = await first.new_run()
    await first.post(run_id, frame(1, [1.0]))
    rule = {"alert": "Big", "scope": "run", "when": "loss > 5"}
    document = {"version": 1, "groups": [{"name": "mine", "rules": [rule]}]}
    await second.json("POST", "/rules", json=document)

    seq = 1

    async def is_told() -> bool:
        nonlocal seq
        seq += 1
        await first.post(run_id, frame(seq, [9.0], first_step=seq - 1))
        return ("Big", "firing") in await alerts(second, run_id)

    await until_told(is_told)


async def test_an_event_stream_shows_what_the_other_replica_did(
    replicas: tuple[Api, Api],
) -> None:
    first, second = replicas
    run_id = await first.new_run()
    await first.post(run_id, frame(1, [math.nan]))

    async def is_told() -> bool:
        return await alerts(second, run_id) == [("NonFinite", "firing")]

    await until_told(is_told)
    (alert,) = (await second.json("GET", f"/alerts?run_id={run_id}"))["alerts"]
    announcer = first.services.announcer
    waiter = announcer.waiter()

    await second.json("POST", f"/alerts/{alert['id']}/ack", json={"note": "seen"})

    assert await announcer.wait(waiter, LONGEST_S)


async def test_what_a_replica_leaves_is_taken_up_by_the_other(
    tmp_path: Path, postgres_url: str
) -> None:
    """The other begins once the run is owned: it would take one that nobody owns yet."""
    async with AsyncExitStack() as leaving:
        first = await leaving.enter_async_context(serve(Storage(tmp_path / "first", postgres_url)))
        run_id = await first.new_run()
        await first.post(run_id, frame(1, [1.0]))
        await until_told(lambda: _is_owned(first, run_id))
        async with serve(
            Storage(tmp_path / "second", postgres_url), admin_key=first.admin_key
        ) as second:
            await leaving.aclose()

            await second.post(run_id, frame(2, [math.nan], first_step=1))
            await until_told(lambda: _is_owned(second, run_id))

            async def is_told() -> bool:
                return await alerts(second, run_id) == [("NonFinite", "firing")]

            await until_told(is_told)


async def test_a_rank_that_speaks_to_the_other_replica_is_not_silent(
    replicas: tuple[Api, Api],
) -> None:
    first, second = replicas
    run_id = await first.new_run()
    beat = {"attempt": 1, "rank": 0, "last_step": 7, "step_age_s": 0.0, "phase": "train"}
    facts = {"lr_scale": 0.25, "dropped_rows": 0, "spooled_frames": 0}

    await second.json("POST", f"/runs/{run_id}/heartbeat", json=beat | facts)

    async def is_heard() -> bool:
        now = first.services.clock.monotonic()
        known = first.services.liveness.facts(run_id, now=now)
        return bool(known) and (known[0].last_step, known[0].lr_scale) == (7, 0.25)

    await until_told(is_heard)


async def test_a_run_that_ended_at_one_replica_is_not_expected_at_the_other(
    replicas: tuple[Api, Api],
) -> None:
    first, second = replicas
    run_id = await first.new_run()

    async def is_expected() -> bool:
        return run_id in second.services.liveness.run_ids()

    async def is_forgotten() -> bool:
        return run_id not in second.services.liveness.run_ids()

    await until_told(is_expected)
    await first.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})
    await until_told(is_forgotten)


async def test_a_message_is_sent_by_one_replica(tmp_path: Path, postgres_url: str) -> None:
    with running_sink() as sink:
        places = [Storage(tmp_path / name, postgres_url) for name in ("first", "second")]
        for place in places:
            place.data_dir.mkdir()
            entry = {"name": "team", "url": f"json://127.0.0.1:{sink.port}/hook"}
            told = {"receivers": [entry], "allow_networks": ["127.0.0.0/8"]}
            (place.data_dir / "receivers.yaml").write_text(yaml.safe_dump(told))
        async with serve(places[0]) as first, serve(places[1], admin_key=first.admin_key) as second:
            runs = [await first.new_run() for _ in range(8)]
            for run_id in runs:
                await second.post(run_id, frame(1, [math.nan]))

            async def are_delivered() -> bool:
                sent = await first.json("GET", "/notifications")
                states = [one["state"] for one in sent["notifications"]]
                return states == ["delivered"] * len(runs)

            await until_told(are_delivered)

        assert len(sink.posts) == len(runs)


async def _is_owned(api: Api, run_id: RunId) -> bool:
    return api.services.evaluators.owns(run_id)


LIVE = {"started_at": 1.7e9, "allow": ["checkpoint"]}


async def test_a_run_that_one_replica_removed_is_another_at_the_other(
    replicas: tuple[Api, Api],
) -> None:
    first, second = replicas
    run_id = await first.new_run(allow=["stop"])
    await second.post(run_id, frame(1, [1.0]))
    order = {"action": {"kind": "stop"}}
    await second.json("POST", f"/runs/{run_id}/commands", json=order)
    await second.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})

    assert (await first.call("DELETE", f"/runs/{run_id}")).status_code == 204
    await first.json("POST", "/runs", json={"run_id": run_id, "name": "test"})
    await first.new_attempt(run_id)

    async def is_forgotten() -> bool:
        await second.post(run_id, frame(next(seqs), [math.nan]))
        return bool((await second.json("GET", f"/runs/{run_id}/metrics"))["metrics"])

    async def is_told() -> bool:
        return await alerts(first, run_id) == [("NonFinite", "firing")]

    seqs = itertools.count(1)
    await until_told(is_forgotten)
    await until_told(is_told)
    answer = await second.post(run_id, frame(next(seqs), [math.nan]))
    assert answer.json()["commands"] == []
