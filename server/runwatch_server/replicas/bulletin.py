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


class _Told(msgspec.Struct):
    by: str
    news: dict[Topic, list[RunId]]
    """An empty list means any run."""


Listener = Callable[[frozenset[RunId] | None], Awaitable[None]]
"""Called with the runs, or with None: look everywhere."""


class Bulletin:
    """Sends with `say` and receives with `on`; `run` runs until cancelled. Without a channel
    nothing is sent."""

    def __init__(self, replica: str, channel: Channel | None) -> None:
        self._replica = replica
        self._channel = channel
        self._listeners: dict[Topic, list[Listener]] = {}
        self._unsaid: dict[Topic, set[RunId]] = {}
        self._heard: dict[Topic, set[RunId] | None] = {}
        self._has_unsaid = asyncio.Event()
        self._has_heard = asyncio.Event()

    def say(self, topic: Topic, run_id: RunId | None = None) -> None:
        """Notify the other replicas, in a moment."""
        if self._channel is not None:
            runs = self._unsaid.setdefault(topic, set())
            if run_id is not None:
                runs.add(run_id)
            self._has_unsaid.set()

    def on(self, topic: Topic, listener: Listener) -> None:
        self._listeners.setdefault(topic, []).append(listener)

    async def run(self) -> None:
        if self._channel is not None:
            async with asyncio.TaskGroup() as tasks:  # if one fails, all end and are restarted
                for part in (self._speak, self._keep_listening, self._poll, self._act):
                    tasks.create_task(part())

    async def _speak(self) -> None:
        assert self._channel is not None
        while True:
            await self._has_unsaid.wait()
            self._has_unsaid.clear()
            unsaid, self._unsaid = self._unsaid, {}
            told = msgspec.json.encode(_Told(self._replica, _listed(unsaid)))
            if len(told) > _MAX_BYTES:
                told = msgspec.json.encode(_Told(self._replica, {topic: [] for topic in unsaid}))
            try:
                await self._channel.tell(told.decode())
            except OSError as error:
                log.info("the other replicas were not told (%s); they will look", error)
            await asyncio.sleep(_GATHER_S)

    async def _keep_listening(self) -> None:
        assert self._channel is not None
        while True:
            try:
                await self._channel.listen(self._hear)
            except OSError as error:
                log.warning("not told by the other replicas for now: %s", error)
            await asyncio.sleep(_RECONNECT_S)

    def _hear(self, payload: str) -> None:
        told = msgspec.json.decode(payload, type=_Told)
        if told.by == self._replica:
            return
        for topic, run_ids in told.news.items():
            known = self._heard.setdefault(topic, set())
            if not run_ids:
                self._heard[topic] = None
            elif known is not None:
                known.update(run_ids)
        self._has_heard.set()

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(_POLL_S)
            self._heard = dict.fromkeys(Topic)
            self._has_heard.set()

    async def _act(self) -> None:
        while True:
            await self._has_heard.wait()
            self._has_heard.clear()
            heard, self._heard = self._heard, {}
            for topic, run_ids in heard.items():
                for listener in self._listeners.get(topic, ()):
                    try:
                        await listener(None if run_ids is None else frozenset(run_ids))
                    except ServiceError as error:  # the database is unavailable
                        log.warning("news about %s could not be looked into: %s", topic, error)
                    except Exception:  # the next poll looks again
                        log.exception("news about %s could not be looked into", topic)


def _listed(unsaid: dict[Topic, set[RunId]]) -> dict[Topic, list[RunId]]:
    return {topic: sorted(run_ids) for topic, run_ids in unsaid.items()}
