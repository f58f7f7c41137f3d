"""The loop that keeps one replica of Alertmanager informed; every replica has its own."""

import asyncio
import logging
import math
import random
from collections.abc import Collection
from typing import Final

from runwatch.vocabulary import AlertId
from runwatch_server.alerts.announcements import Announcer
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.errors import OverloadedError
from runwatch_server.notify import notice_queries
from runwatch_server.notify.alertmanager import Replica, UndeliveredError, batches
from runwatch_server.notify.cases import Case
from runwatch_server.notify.explaining import Explainer
from runwatch_server.notify.posting import (
    HEARTBEAT,
    RESOLVED_FOR_S,
    Posting,
    Sent,
    due_cases,
    heartbeat,
    is_due,
    newest_of_each,
    posting_of,
)
from runwatch_server.notify.receivers import Alertmanagers, Receivers
from runwatch_server.per_run_tasks import PerRunTasks

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0
"""Seconds between looks. News wakes the loop at once; alerts that end by the clock are found by
looking."""
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 60.0


class Pusher:
    """A background task: `run` until cancelled."""

    def __init__(
        self,
        replica: Replica,
        config: Receivers,
        alertmanagers: Alertmanagers,
        *,
        database: Database,
        clock: Clock,
        announcer: Announcer,
        explainer: Explainer,
    ) -> None:
        self._explainer = explainer
        self._replica = replica
        self._config = config
        self._alertmanagers = alertmanagers
        self._database = database
        self._clock = clock
        self._announcer = announcer
        self._started_at = clock.wall()
        self._sent: dict[str, Sent] = {}
        self._num_failures = 0
        self._tasks = PerRunTasks(f"telling alertmanager {replica.figures.shown_url} of it")

    async def run(self) -> None:
        while True:
            waiter = self._announcer.waiter()
            if await self._try_to_push():
                await self._announcer.wait(waiter, LOOK_EVERY_S)
            else:
                # Not cut short by news: a replica that is down must not be contacted each time.
                await asyncio.sleep(self._next_wait_s())

    async def push(self) -> None:
        """Send what is due. Raises UndeliveredError."""
        wall, now = self._clock.wall(), self._clock.monotonic()
        for batch in batches(await self._due(wall, now)):
            await self._replica.post(batch)
            self._note_sent(batch, now)

    async def _due(self, wall: float, now: float) -> list[Posting]:
        name, url = self._config.name, self._config.url
        async with self._database.read() as connection:
            cases = await notice_queries.list_standing(
                connection,
                self._tasks,
                since=wall - RESOLVED_FOR_S,
                also=self._unended(),
            )
            # An alert that goes on under the same labels, as the next occurrence of a problem does,
            # replaces those before it: their ends need not be sent any more.
            wanted = newest_of_each([case for case in cases if self._wants(case)], name)
            due = due_cases(wanted, self._sent, now=now)
            due = await notice_queries.with_commands(connection, due)
        due = await self._explainer.explain(due)
        known = {HEARTBEAT, *(case.alert.id for case in wanted)}
        self._sent = {key: sent for key, sent in self._sent.items() if key in known}
        postings = [posting_of(case, watchdog=name, url=url, wall=wall) for case in due]
        if is_due(False, self._sent.get(HEARTBEAT), now=now):
            postings.append(heartbeat(watchdog=name, started_at=self._started_at, wall=wall))
        return postings

    def _unended(self) -> list[AlertId]:
        """Alerts whose end the replica has not accepted yet, however long ago it was."""
        return [
            AlertId(key)
            for key, sent in self._sent.items()
            if key != HEARTBEAT and not sent.is_resolved
        ]

    def has_unsent_end_of(self, alert_ids: Collection[AlertId]) -> bool:
        """Whether the replica still believes that any of these alerts, which are over, goes on."""
        return any(key in self._sent and not self._sent[key].is_resolved for key in alert_ids)

    def _wants(self, case: Case) -> bool:
        """Whether to send a case. An alert that became explained by another is still sent, or
        Alertmanager would consider it resolved; its own inhibition keeps it from people
        (dashboards/alertmanager.yml). An end is always sent, because the service may have sent the
        beginning before a restart."""
        is_wanted = self._alertmanagers.wanted.takes(case.alert.severity, case.alert.project)
        was_sent = case.alert.id in self._sent
        return is_wanted and (case.alert.is_notifiable or was_sent or case.is_resolved)

    def _note_sent(self, batch: list[Posting], now: float) -> None:
        for posting in batch:
            self._sent[posting.key] = Sent(posting.is_resolved, now)
        self._replica.figures.last_success_at = self._clock.wall()

    def _note_failure(self) -> None:
        """Send everything again after a failure: a replica that was down may have come back without
        any state."""
        self._num_failures += 1
        self._sent = {key: Sent(sent.is_resolved, -math.inf) for key, sent in self._sent.items()}

    async def _try_to_push(self) -> bool:
        shown = self._replica.figures.shown_url
        try:
            await self.push()
        except UndeliveredError as error:
            if self._num_failures == 0:
                log.warning("alertmanager %s: %s; tried again until it takes", shown, error)
        except OverloadedError as error:  # the database is unavailable
            log.warning("alertmanager %s: %s; tried again", shown, error)
        except Exception:  # notifying must go on after a failed round
            log.exception("alertmanager %s: a round failed; tried again", shown)
        else:
            if self._num_failures:
                log.info("alertmanager %s: takes alerts again", shown)
            self._num_failures = 0
            return True
        self._note_failure()
        return False

    def _next_wait_s(self) -> float:
        wait_s = min(_FIRST_WAIT_S * 2.0 ** (self._num_failures - 1), _LONGEST_WAIT_S)
        return wait_s * random.uniform(0.5, 1.0)
