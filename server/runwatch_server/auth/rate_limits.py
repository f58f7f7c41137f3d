"""Rate limits: for each key, and for each address that shows no valid key.

They are in memory, so each replica has its own. Frames have a limit of their own: what a person
does with a key must not keep a trainer from being watched, nor the other way round.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from runwatch_server.errors import RateLimitedError

MAX_BUCKETS: Final = 10_000
"""Most callers remembered; beyond that, the one not heard of for longest is dropped."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Requests, or bytes, per second as a long-run average, and how many may come at once."""

    per_s: float
    burst: float


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class RateLimit:
    """A token bucket for each caller."""

    def __init__(self, limit: Limit, monotonic: Callable[[], float]) -> None:
        self._limit = limit
        self._monotonic = monotonic
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, asker: str, tokens: float = 1.0) -> None:
        """Takes some tokens, all there can be if they are more. Raises RateLimitedError, with the
        seconds to wait, if there are not so many."""
        wait_s = self._wait_s(asker, min(tokens, self._limit.burst))
        if wait_s > 0:
            raise RateLimitedError(wait_s)

    def _wait_s(self, asker: str, tokens: float) -> float:
        now = self._monotonic()
        bucket = self._buckets.pop(asker, None) or _Bucket(self._limit.burst, now)
        self._buckets[asker] = bucket  # moved to the end: the first one is dropped first
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        refilled = bucket.tokens + (now - bucket.at) * self._limit.per_s
        bucket.tokens, bucket.at = min(refilled, self._limit.burst), now
        if bucket.tokens >= tokens:
            bucket.tokens -= tokens
            return 0.0
        return (tokens - bucket.tokens) / self._limit.per_s


class RateLimits:
    """The limits of one service."""

    def __init__(
        self,
        *,
        requests_per_s: float,
        ingest_per_s: float,
        refused_per_s: float,
        unpacked_mib_per_s: float,
        monotonic: Callable[[], float],
    ) -> None:
        self.requests = RateLimit(Limit(requests_per_s, 5 * requests_per_s), monotonic)
        """For each key: all requests that are not a trainer's."""
        self.ingest = RateLimit(Limit(ingest_per_s, 2 * ingest_per_s), monotonic)
        """For each key: trainers' frames, heartbeats and commands. A thousand may share a key."""
        self.refused = RateLimit(Limit(refused_per_s, 60 * refused_per_s), monotonic)
        """For each address: requests without a valid key. It never holds up a valid key, since
        trainers and somebody who guesses keys may share a proxy's address."""
        unpacked = unpacked_mib_per_s * 2**20
        self.unpacked = RateLimit(Limit(unpacked, 2 * unpacked), monotonic)
        """For each key: bytes that its frames take once they are unpacked."""
