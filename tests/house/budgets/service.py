"""What the service runs for a frame, an alert and a command: the product's files of each way.

    python -m tests.house.budgets.service    # prints the figures as JSON

Each way is gone before it is traced, so that what happens at a first time only is left out. So is
what runs beside it: frames are not judged where only their reply is waited for, and no loop runs in
the background but the one that posts to Alertmanager, where that is waited for.
"""

import asyncio
import json
import math
import os
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final
from unittest.mock import patch

import httpx
import numpy as np
import yaml
from tests.proofs import proof
from tests.server.harness import Api, HandClock, frame, serve
from tests.server.notify.sink import Sink, running_sink
from tests.waiting import until_so

import runwatch
import runwatch_server
from runwatch.codec import CONTENT_TYPE, encode_frame
from runwatch.vocabulary import RunId
from runwatch_server import background
from runwatch_server.background import Loop
from runwatch_server.notify import pusher

PRODUCT: Final = tuple(
    str(Path(str(package.__file__)).parent) + os.sep for package in (runwatch, runwatch_server)
)
NUM_STEPS: Final = 20
"""Of a frame."""
PUSHER: Final = "pusher to "
"""How the name of the loop that posts to Alertmanager begins."""
COMMAND: Final = {"action": {"kind": "checkpoint"}, "reason": "before the maintenance"}


class Tracer:
    """Notes the files that run while it is on, in this thread and in those that start later."""

    def __init__(self) -> None:
        self._files: set[str] | None = None
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    @contextmanager
    def on(self) -> Generator[set[str]]:
        """The files, which are complete afterwards."""
        files = self._files = set[str]()
        try:
            yield files
        finally:
            self._files = None

    def _note(self, running: FrameType, event: str, _: object) -> None:
        if (files := self._files) is not None and event == "call":
            files.add(running.f_code.co_filename)


def figures() -> dict[str, float]:
    return {way: len(files) for way, files in asyncio.run(traced()).items()}


async def traced() -> dict[str, set[str]]:
    """The product's files of each way."""
    tracer = Tracer()
    with tempfile.TemporaryDirectory() as folder, running_sink() as sink:
        async with _serving(Path(folder, "answering"), sink, loops=()) as api:
            await api.services.evaluators.stop()
            found = {
                "post_files": await _of_a_post(api, tracer),
                "order_files": await _of_an_order(api, tracer),
            }
        async with _serving(Path(folder, "judging"), sink, loops=(PUSHER,)) as api:
            found["alert_files"] = await _of_an_alert(api, sink, tracer)
    return {
        way: {file for file in files if file.startswith(PRODUCT)} for way, files in found.items()
    }


async def _of_a_post(api: Api, tracer: Tracer) -> set[str]:
    """From the request of a frame to its reply."""
    run_id = await api.new_run()
    for number in (1, 2):
        await _send(api, _post(api, run_id, number))
    request = _post(api, run_id, 3)
    with tracer.on() as files:
        await _send(api, request)
    return files


async def _of_an_order(api: Api, tracer: Tracer) -> set[str]:
    """From the request of a command to its reply."""
    run_id = await api.new_run()
    await _send(api, _order(api, run_id))
    request = _order(api, run_id)
    with tracer.on() as files:
        await _send(api, request)
    return files


async def _of_an_alert(api: Api, sink: Sink, tracer: Tracer) -> set[str]:
    """From the request of a frame that breaks a run to what Alertmanager is sent."""
    other, run_id = await api.new_run(), await api.new_run()
    for one in (other, run_id):
        await _judge(api, one, _post(api, one, 1))
    await _notify(api, sink, other, _post(api, other, 2, breaks=True))
    request = _post(api, run_id, 2, breaks=True)
    with tracer.on() as files:
        await _notify(api, sink, run_id, request)
    return files


async def _notify(api: Api, sink: Sink, run_id: RunId, request: httpx.Request) -> None:
    await _judge(api, run_id, request)
    await until_so(lambda: _is_notified(sink, run_id))


async def _judge(api: Api, run_id: RunId, request: httpx.Request) -> None:
    await _send(api, request)
    await until_so(lambda: api.services.evaluators.is_drained(run_id))


async def _send(api: Api, request: httpx.Request) -> None:
    reply = await api.http.send(request)
    assert reply.is_success, reply.text


def _is_notified(sink: Sink, run_id: RunId) -> bool:
    sent = (alert["labels"] for body in sink.bodies for alert in body)
    return any(labels.get("run_id") == run_id for labels in sent)


def _post(api: Api, run_id: RunId, number: int, *, breaks: bool = False) -> httpx.Request:
    losses = [2.0] * (NUM_STEPS - 1) + [math.nan if breaks else 2.0]
    first_step = NUM_STEPS * (number - 1)
    stats = np.ones((NUM_STEPS, 2), np.float32)
    body = encode_frame(frame(number, losses, first_step=first_step, stats=stats))
    headers = {"Content-Type": CONTENT_TYPE, **proof(run_id)}
    return _request(api, f"/runs/{run_id}/frames", headers, content=body)


def _order(api: Api, run_id: RunId) -> httpx.Request:
    return _request(api, f"/runs/{run_id}/commands", {}, json=COMMAND)


def _request(api: Api, path: str, headers: dict[str, str], **body: Any) -> httpx.Request:
    headers = {"Authorization": f"Bearer {api.admin_key}", **headers}
    return api.http.build_request("POST", f"/api/v1{path}", headers=headers, **body)


@asynccontextmanager
async def _serving(folder: Path, sink: Sink, *, loops: tuple[str, ...]) -> AsyncGenerator[Api]:
    """A service whose clock does not move, with loops of these names. They look at news only."""

    async def run_once(loop: Loop, *_: object) -> None:
        if loop.name.startswith(loops):
            await loop.run()

    folder.mkdir()
    receivers = {"name": "budgets", "alertmanager": {"urls": [sink.url]}}
    (folder / "receivers.yaml").write_text(yaml.safe_dump(receivers))
    with (
        patch.object(background, "_run_again", run_once),
        patch.object(pusher, "LOOK_EVERY_S", 3600.0),
    ):
        async with serve(folder, clock=HandClock()) as api:
            yield api


if __name__ == "__main__":
    sys.stdout.write(json.dumps(figures()))
