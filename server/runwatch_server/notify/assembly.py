"""Assembles notifying from the receivers' file and what the service has opened."""

import importlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass

from runwatch.extras import pip_install
from runwatch.vocabulary import RunId
from runwatch_server.alerts.announcements import Announcer
from runwatch_server.alerts.diagnosis.findings import SignFinder
from runwatch_server.background import Loop
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.errors import SettingsError
from runwatch_server.notify import notice_queries, queries
from runwatch_server.notify.alertmanager import Replica, make_client
from runwatch_server.notify.dispatcher import Dispatcher
from runwatch_server.notify.explaining import Explainer
from runwatch_server.notify.pusher import Pusher
from runwatch_server.notify.receivers import Receiver, Receivers
from runwatch_server.notify.sending import Sender
from runwatch_server.notify.settler import Settler


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifying:
    """The parts that notify people, made by `start_notifying`."""

    replicas: Sequence[Replica]
    pushers: Sequence[Pusher]
    dispatchers: Sequence[Dispatcher]
    settler: Settler

    def loops(self) -> Iterator[Loop]:
        """One loop for each replica and receiver, and the settler's."""
        for replica, pusher in zip(self.replicas, self.pushers, strict=True):
            # The names are labels in `/metrics`.
            yield Loop(f"pusher to {replica.figures.shown_url}", pusher.run)
        for dispatcher in self.dispatchers:
            yield Loop(f"dispatcher to {dispatcher.figures.receiver}", dispatcher.run)
        yield Loop("settler", self.settler.run)

    async def has_sent_ends(self, database: Database, run_id: RunId) -> bool:
        """Whether all who were notified of a run's alerts have been notified of their ends."""
        async with database.read() as connection:
            ended = await notice_queries.list_ended(connection, run_id)
            if await queries.count_unsent_ends(connection, run_id):
                return False
        return not any(pusher.has_unsent_end_of(ended) for pusher in self.pushers)


async def start_notifying(
    stack: AsyncExitStack,
    config: Receivers,
    *,
    database: Database,
    clock: Clock,
    announcer: Announcer,
    sign_finder: SignFinder,
) -> Notifying:
    """Prepare notifying; its loops belong in background tasks, which must stop before the stack
    unwinds.

    Raises SettingsError for a receiver that cannot be used.
    """
    explainer = Explainer(sign_finder)
    replicas: list[Replica] = []
    pushers: list[Pusher] = []
    if config.alertmanagers is not None:
        client = await stack.enter_async_context(make_client())
        replicas = [Replica(url, client) for url in config.alertmanagers.urls]
        pushers = [
            Pusher(
                replica,
                config,
                config.alertmanagers,
                database=database,
                clock=clock,
                announcer=announcer,
                explainer=explainer,
            )
            for replica in replicas
        ]
    dispatchers: list[Dispatcher] = []
    if config.receivers:
        # One thread per receiver, so that a slow receiver does not block another.
        threads = stack.enter_context(
            ThreadPoolExecutor(len(config.receivers), thread_name_prefix="dispatcher")
        )
        dispatchers = [
            Dispatcher(
                receiver,
                sender_to(receiver),
                config,
                database=database,
                clock=clock,
                announcer=announcer,
                explainer=explainer,
                threads=threads,
            )
            for receiver in config.receivers
        ]
    return Notifying(
        replicas=replicas,
        pushers=pushers,
        dispatchers=dispatchers,
        settler=Settler(database, clock),
    )


def sender_to(receiver: Receiver) -> Sender:
    """Import the sender's module by its name, since Apprise may not be installed, and needs 45
    MB."""
    try:
        module = importlib.import_module("runwatch_server.notify.apprise_sending")
    except ModuleNotFoundError as error:
        raise SettingsError(
            "receivers: found some, but no Apprise to reach them with; "
            f"install it with: {pip_install('oncall')}"
        ) from error
    sender: Sender = module.AppriseSender(receiver)
    return sender
