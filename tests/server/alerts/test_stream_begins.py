"""A stream of events begins where the events of its run are, whatever other runs have had since."""

import asyncio
from functools import partial

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.requests import Request
from starlette.types import Message
from tests.server.harness import Api, Storage, open_database

from runwatch.vocabulary import RunId
from runwatch_server.alerts.stream_api import stream
from runwatch_server.alerts.tables import alert_events

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.heavy,
    pytest.mark.parametrize("engine", ["postgresql"], indirect=True),
]


async def note_event(connection: AsyncConnection, run_id: RunId) -> None:
    row = {
        "run_id": run_id,
        "alert_id": "A",
        "kind": "fired",
        "at": 0.0,
        "actor": "",
        "detail": "{}",
    }
    await connection.execute(alert_events.insert(), row)


async def never() -> Message:
    await asyncio.Event().wait()
    return {}


async def test_what_was_being_written_as_it_began_is_told(api: Api, storage: Storage) -> None:
    """Another run's event, with a later number, is committed first."""
    run_id, other = await api.new_run(), await api.new_run()
    has_number, may_commit = asyncio.Event(), asyncio.Event()

    async def note_slowly(connection: AsyncConnection) -> None:
        await note_event(connection, run_id)
        has_number.set()
        await may_commit.wait()

    async with open_database(storage) as replica:
        writing = asyncio.create_task(replica.write(note_slowly, of=run_id))
        await has_number.wait()
        await api.services.database.write(partial(note_event, run_id=other), of=other)
        reader = await api.services.keys.authenticate(api.admin_key)
        request = Request({"type": "http"}, receive=never)
        response = await stream(request, api.services, reader, run_id, None)
        may_commit.set()
        await writing

        events = aiter(response.body_iterator)
        told = [await anext(events) for _ in range(2)]
    assert told[0] == b": here begins the stream\n\n"
    assert isinstance(told[1], bytes)
    assert b"event: alert" in told[1]
