"""A service with receivers, and a sink that they lead to."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import yaml
from tests.server.harness import Api, HandClock, Storage, serve
from tests.server.notify.sink import Sink, running_sink

from runwatch_server.notify import dispatcher as dispatcher
from runwatch_server.notify import pusher, settler


@pytest.fixture
def sink() -> Iterator[Sink]:
    with running_sink() as running:
        yield running


@pytest.fixture
def receivers(sink: Sink) -> dict[str, Any]:
    """The receivers' file; a test changes what it is about before it takes `told`."""
    entry = {"name": "team", "url": f"json://127.0.0.1:{sink.port}/hook", "repeat_s": 3600}
    return {
        "name": "tests",
        "url": "https://runwatch.test",
        "receivers": [entry],
        "allow_networks": ["127.0.0.0/8"],
    }


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service looks at its clock as often as a hand moves it."""
    for loop in (dispatcher, pusher, settler):
        monkeypatch.setattr(loop, "LOOK_EVERY_S", 0.05)


@pytest.fixture
async def told(
    storage: Storage, hand_clock: HandClock, receivers: dict[str, Any], quick_looks: None
) -> AsyncIterator[Api]:
    """A service that tells its receivers."""
    (storage.data_dir / "receivers.yaml").write_text(yaml.safe_dump(receivers))
    async with serve(storage, clock=hand_clock) as api:
        yield api
