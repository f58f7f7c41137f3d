"""Posts alerts to one replica of Alertmanager.

A batch with one invalid alert is answered with 400, although the valid ones are stored
(alertmanager, api/v2/api.go). So each alert of such a batch is sent again by itself, once, and the
one that is refused again is counted and dropped. No redirect is followed and no proxy from the
environment is used: alerts go to the configured addresses and nowhere else.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from typing import Final

import httpx
import msgspec

from runwatch.addresses import place_of
from runwatch_server.notify.posting import Posting

log = logging.getLogger(__name__)

BATCH_ALERTS: Final = 256
TIMEOUT_S: Final = 10.0
"""Seconds for a whole request: a peer that sends one byte per second is as good as none."""


class UndeliveredError(Exception):
    """The replica did not accept a batch; the message says why, without secrets."""


@dataclass(slots=True)
class Figures:
    """Figures about one replica, for `/metrics`."""

    shown_url: str
    last_success_at: float = 0.0
    """Unix seconds; 0 before the first success."""
    num_sent: int = 0
    num_rejected: int = 0
    num_failed: int = 0
    """Number of requests without a usable answer."""


def make_client() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False)


class Replica:
    """One address of Alertmanager."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self._url = f"{url}/api/v2/alerts"
        self._client = client
        self.figures = Figures(place_of(url))

    async def post(self, postings: Sequence[Posting]) -> None:
        """Post at most BATCH_ALERTS alerts. Raises UndeliveredError if they have to be sent again.
        Alerts that the replica refuses as invalid are not sent again."""
        assert len(postings) <= BATCH_ALERTS
        if await self._ask(postings) != HTTPStatus.BAD_REQUEST:
            self.figures.num_sent += len(postings)
            return
        for posting in postings:
            if await self._ask([posting]) == HTTPStatus.BAD_REQUEST:
                self.figures.num_rejected += 1
                log.warning(
                    "alertmanager %s refuses alert %s (%s) as not valid",
                    self.figures.shown_url,
                    posting.key,
                    posting.alert.labels["alertname"],
                )
            else:
                self.figures.num_sent += 1

    async def _ask(self, postings: Sequence[Posting]) -> int:
        """The status of a request that the replica understood. Raises UndeliveredError."""
        body = msgspec.json.encode([posting.alert for posting in postings])
        headers = {"Content-Type": "application/json"}
        try:
            async with (
                asyncio.timeout(TIMEOUT_S),
                self._client.stream("POST", self._url, content=body, headers=headers) as reply,
            ):
                status = reply.status_code  # the body is never read
        except (httpx.HTTPError, TimeoutError, OSError) as error:
            self.figures.num_failed += 1
            raise UndeliveredError(f"no answer ({type(error).__name__})") from None
        if status != HTTPStatus.BAD_REQUEST and not 200 <= status < 300:
            self.figures.num_failed += 1
            raise UndeliveredError(f"answered {status}")
        return status


def batches(postings: Sequence[Posting]) -> list[list[Posting]]:
    """Batches in the given order, as large as those of Prometheus."""
    rest = iter(postings)
    return [
        batch
        for _ in range(0, len(postings), BATCH_ALERTS)
        if (batch := list(islice(rest, BATCH_ALERTS)))
    ]
