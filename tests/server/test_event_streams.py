"""How a stream of events ends: by itself, whatever becomes of its reader or of the database."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.types import Message
from tests.server.harness import Api

from runwatch_server.auth.keys import KeyScope, Principal
from runwatch_server.errors import OverloadedError

pytestmark = pytest.mark.anyio
READER = Principal(key_id="k", name="reader", scopes=frozenset([KeyScope.READ]), project=None)


async def sent_of(api: Api, events: AsyncIterator[bytes]) -> list[Message]:
    """All that goes out of a stream whose reader has gone as soon as it began."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    response = api.services.event_streams.respond(READER, events)
    await response({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)
    return sent


async def test_a_stream_whose_reader_has_gone_is_not_cut_off_in_a_question(api: Api) -> None:
    async def events() -> AsyncIterator[bytes]:
        yield b": here begins the stream\n\n"
        for _ in range(20):
            await asyncio.sleep(0)  # as where the database is asked
        yield b": answered\n\n"

    sent = await sent_of(api, events())

    assert [message.get("body") for message in sent[1:]] == [
        b": here begins the stream\n\n",
        b": answered\n\n",
        b"",
    ]


async def test_a_stream_ends_in_order_where_the_database_is_away(api: Api) -> None:
    async def events() -> AsyncIterator[bytes]:
        yield b": here begins the stream\n\n"
        raise OverloadedError("database_unreachable", "The database does not answer.")

    sent = await sent_of(api, events())

    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
