"""A run that is removed and comes again under its id is another: nothing of the first is left."""

import asyncio
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.types import Message
from tests.server.harness import LAYOUT, Api, frame
from tests.waiting import until_so, until_told

from runwatch.vocabulary import RunId, RunState
from runwatch_server.runs.purge import purge_run
from runwatch_server.runs.queries import OpenRun, delete_run
from runwatch_server.runs.removals import Removals
from runwatch_server.runs.tables import attempts
from runwatch_server.telemetry.history_api import read_history

pytestmark = pytest.mark.anyio


async def removed(api: Api) -> RunId:
    """A run that has sent two frames, and has been removed."""
    run_id = await api.new_run()
    await send(api, run_id, num_frames=2)
    await api.until_judged(run_id)
    await end_and_remove(api, run_id)
    return run_id


async def end_and_remove(api: Api, run_id: RunId) -> None:
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})
    assert (await api.call("DELETE", f"/runs/{run_id}")).status_code == 204


async def open_again(api: Api, run_id: RunId) -> None:
    await api.json("POST", "/runs", json={"run_id": run_id, "name": "test"})
    await api.new_attempt(run_id)


async def send(api: Api, run_id: RunId, *, num_frames: int) -> None:
    for seq in range(1, num_frames + 1):
        sent = frame(seq, [1.0], first_step=seq - 1, stats=np.ones((1, 2), np.float32))
        assert (await api.post(run_id, sent)).status_code == 200


async def test_its_metrics_are_named_again(api: Api) -> None:
    run_id = await removed(api)
    await open_again(api, run_id)

    await api.post(run_id, frame(1, [1.0]))

    assert (await api.json("GET", f"/runs/{run_id}/metrics"))["metrics"] == ["loss"]


async def test_its_layout_has_to_be_registered_again(api: Api) -> None:
    run_id = await removed(api)
    await open_again(api, run_id)

    answer = await api.post(run_id, frame(1, [1.0], stats=np.ones((1, 2), np.float32)))

    assert answer.json()["code"] == "unknown_layout"
    await api.put_layout(run_id, LAYOUT)
    await send(api, run_id, num_frames=1)


async def test_it_is_judged_from_its_first_frame(api: Api) -> None:
    run_id = await removed(api)
    await open_again(api, run_id)

    await api.post(run_id, frame(1, [math.nan]))

    async def is_told() -> bool:
        found = await api.json("GET", f"/alerts?run_id={run_id}")
        return [alert["rule"] for alert in found["alerts"]] == ["NonFinite"]

    await until_told(is_told)


async def test_it_is_not_given_a_command_that_was_for_the_first(api: Api) -> None:
    run_id = await api.new_run(allow=["stop"])
    await api.json("POST", f"/runs/{run_id}/commands", json={"action": {"kind": "stop"}})
    await end_and_remove(api, run_id)
    await open_again(api, run_id)

    answer = await api.post(run_id, frame(1, [1.0]))

    assert answer.json()["commands"] == []
    assert (await api.json("GET", f"/runs/{run_id}/commands"))["commands"] == []


async def test_its_stream_of_events_ends(api: Api) -> None:
    run_id = await api.new_run()
    parts: list[bytes] = []
    reading = asyncio.create_task(read_stream(api, run_id, parts))
    await until_so(lambda: len(parts) == 1)

    await end_and_remove(api, run_id)

    await reading
    assert parts[0] == b": here begins the stream\n\n"
    assert parts[-1] == b""


async def read_stream(api: Api, run_id: RunId, parts: list[bytes]) -> None:
    """All that a stream of events sends, part by part."""

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            parts.append(message["body"])

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/api/v1/stream",
        "raw_path": b"/api/v1/stream",
        "query_string": f"run_id={run_id}".encode(),
        "headers": [
            (b"host", b"127.0.0.1"),
            (b"authorization", f"Bearer {api.admin_key}".encode()),
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "root_path": "",
    }
    await api.app(scope, receive, send)


async def test_a_removal_that_was_cut_short_leaves_it_nothing(api: Api) -> None:
    run_id = await api.new_run()
    await send(api, run_id, num_frames=2)
    await api.services.database.write(partial(delete_run, run_id=run_id))

    await open_again(api, run_id)

    assert (await api.json("GET", f"/runs/{run_id}/metrics"))["metrics"] == []
    attempts = (await api.json("GET", f"/runs/{run_id}/attempts"))["attempts"]
    assert [one["attempt"] for one in attempts] == [1]


async def delete_attempts(connection: AsyncConnection, run_id: RunId) -> None:
    await connection.execute(attempts.delete().where(attempts.c.run_id == run_id))


async def test_a_request_that_a_removal_overtakes_finds_no_steps(api: Api) -> None:
    run_id = await api.new_run()
    await send(api, run_id, num_frames=2)
    await api.services.database.write(partial(delete_attempts, run_id=run_id))

    assert (await read_history(api.services, run_id, 1)).stretches == []


async def test_what_is_left_of_a_removal_touches_no_run_of_the_same_id(api: Api) -> None:
    run_id = await removed(api)
    await open_again(api, run_id)

    await purge_run(api.services.database, run_id)

    attempts = (await api.json("GET", f"/runs/{run_id}/attempts"))["attempts"]
    assert [one["attempt"] for one in attempts] == [1]


def test_who_looks_at_the_open_runs_sees_that_one_is_another() -> None:
    told: list[RunId] = []
    removals = Removals()
    removals.on(told.append)
    first = OpenRun(RunId("a"), RunState.TRAINING, 1, created_at=1.0)
    other = replace(first, id=RunId("b"))

    removals.detect_replaced([first, other])
    removals.detect_replaced([other])
    removals.detect_replaced([replace(first, created_at=2.0), other])

    assert told == ["a"]


async def test_what_another_replica_removed_is_forgotten_here() -> None:
    told: list[RunId] = []
    removals = Removals()
    removals.on(told.append)

    await removals.on_removed(frozenset({RunId("a")}))
    await removals.on_removed(None)

    assert told == ["a"]
