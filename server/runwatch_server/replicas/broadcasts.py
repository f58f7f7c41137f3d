"""How replicas notify each other that something was committed which others wait for.

A notification is only a hint: it may be lost, and says nothing that is not in the database. So each
replica also looks for itself every second or two. Sent with PostgreSQL's NOTIFY, after collecting
for some milliseconds, because each NOTIFY takes a lock that all commits of the cluster share.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final

import msgspec

from runwatch.vocabulary import RunId
from runwatch_server.cancellation import run_together
from runwatch_server.db import Channel
from runwatch_server.errors import ServiceError

log = logging.getLogger(__name__)

_GATHER_S: Final = 0.05
_POLL_S: Final = 2.0
_RECONNECT_S: Final = 1.0
_MAX_BYTES: Final = 7000
"""PostgreSQL allows 8000. If there is more, there is so much news that everybody looks
everywhere."""


class Topic(StrEnum):
    FRAMES = "frames"
    """New frames of a run, for its owner to judge."""
    COMMANDS = "commands"
    """New commands of a run, for the replica that its trainer asks."""
    NEWS = "news"
    """News of alerts and commands, for open event streams."""
    RULES = "rules"
    """Changed rules of any project."""
    REMOVED = "removed"
    """A deleted run, for replicas that remember something of it."""


class _Message(msgspec.Struct):
    by: str
    news: dict[Topic, list[RunId]]
    """An empty list means any run."""


Listener = Callable[[frozenset[RunId] | None], Awaitable[None]]
"""Called with the runs, or with None: look everywhere."""


class Broadcasts:
    """Sends with `send` and receives with `on`; `run` runs until cancelled. Without a channel
    nothing is sent."""

    def __init__(self, replica: str, channel: Channel | None) -> None:
        self._replica = replica
        self._channel = channel
        self._listeners: dict[Topic, list[Listener]] = {}
        self._pending: dict[Topic, set[RunId]] = {}
        self._received: dict[Topic, set[RunId] | None] = {}
        self._has_pending = asyncio.Event()
        self._has_received = asyncio.Event()

    def send(self, topic: Topic, run_id: RunId | None = None) -> None:
        """Notify the other replicas, in a moment."""
        if self._channel is not None:
            runs = self._pending.setdefault(topic, set())
            if run_id is not None:
                runs.add(run_id)
            self._has_pending.set()

    def on(self, topic: Topic, listener: Listener) -> None:
        self._listeners.setdefault(topic, []).append(listener)

    async def run(self) -> None:
        if self._channel is not None:
            await run_together(  # if one fails, all end and are restarted
                self._send_pending(),
                self._keep_receiving(),
                self._poll(),
                self._call_listeners(),
            )

    async def _send_pending(self) -> None:
        assert self._channel is not None
        while True:
            await self._has_pending.wait()
            self._has_pending.clear()
            pending, self._pending = self._pending, {}
            message = msgspec.json.encode(_Message(self._replica, _listed(pending)))
            if len(message) > _MAX_BYTES:
                message = msgspec.json.encode(
                    _Message(self._replica, {topic: [] for topic in pending})
                )
            try:
                await self._channel.notify(message.decode())
            except OSError as error:
                log.info("the other replicas were not told (%s); they will look", error)
            await asyncio.sleep(_GATHER_S)

    async def _keep_receiving(self) -> None:
        assert self._channel is not None
        while True:
            try:
                await self._channel.listen(self._receive)
            except OSError as error:
                log.warning("not told by the other replicas for now: %s", error)
            await asyncio.sleep(_RECONNECT_S)

    def _receive(self, payload: str) -> None:
        message = msgspec.json.decode(payload, type=_Message)
        if message.by == self._replica:
            return
        for topic, run_ids in message.news.items():
            known = self._received.setdefault(topic, set())
            if not run_ids:
                self._received[topic] = None
            elif known is not None:
                known.update(run_ids)
        self._has_received.set()

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(_POLL_S)
            self._received = dict.fromkeys(Topic)
            self._has_received.set()

    async def _call_listeners(self) -> None:
        while True:
            await self._has_received.wait()
            self._has_received.clear()
            received, self._received = self._received, {}
            for topic, run_ids in received.items():
                for listener in self._listeners.get(topic, ()):
                    try:
                        await listener(None if run_ids is None else frozenset(run_ids))
                    except ServiceError as error:  # the database is unavailable
                        log.warning("news about %s could not be looked into: %s", topic, error)
                    except Exception:  # the next poll looks again
                        log.exception("news about %s could not be looked into", topic)


def _listed(pending: dict[Topic, set[RunId]]) -> dict[Topic, list[RunId]]:
    return {topic: sorted(run_ids) for topic, run_ids in pending.items()}
