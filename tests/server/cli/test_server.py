"""uvicorn's server, as the service runs it."""

import asyncio
import signal

import uvicorn

from runwatch_server.cli.server import Server


async def no_app(scope: object, receive: object, send: object) -> None:
    """Is never asked anything."""


def make_server() -> Server:
    return Server(uvicorn.Config(no_app, log_config=None), date_s=1e6)


def test_a_signal_wakes_a_server_that_sleeps() -> None:
    async def scenario() -> None:
        server = make_server()
        serving = asyncio.create_task(server.main_loop())
        await asyncio.sleep(0)

        server.handle_exit(signal.SIGTERM, None)

        async with asyncio.timeout(30):
            await serving

    asyncio.run(scenario())


def test_a_signal_that_came_while_it_started_is_not_lost() -> None:
    async def scenario() -> None:
        server = make_server()
        server.handle_exit(signal.SIGTERM, None)
        async with asyncio.timeout(30):
            await server.main_loop()

    asyncio.run(scenario())
