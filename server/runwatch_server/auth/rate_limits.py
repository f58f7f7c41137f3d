"""How often one may ask: by key, and by address for whoever shows no good key.

In memory, and so of each replica by itself. Frames have a limit of their own: what a person does
with a key must not keep a trainer from being watched, nor the other way round.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from runwatch_server.errors import RateLimitedError

MAX_BUCKETS: Final = 10_000
"""Askers remembered; the one longest unheard of is forgotten, with its debt."""


@dataclass(frozen=True, slots=True)
class Limit:
    """So many requests a second in the long run, and so many at once."""

    per_s: float
    burst: float


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class RateLimit:
    """A token bucket for each asker."""

    def __init__(self, limit: Limit, monotonic: Callable[[], float]) -> None:
        self._limit = limit
        self._monotonic = monotonic
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, asker: str) -> None:
        """Raises RateLimitedError, with the seconds until there is room, where there is none."""
        wait_s = self._wait_s(asker)
        if wait_s > 0:
            raise RateLimitedError(wait_s)

    def _wait_s(self, asker: str) -> float:
        now = self._monotonic()
        bucket = self._buckets.pop(asker, None) or _Bucket(self._limit.burst, now)
        self._buckets[asker] = bucket  # last in order: the first is forgotten first
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        refilled = bucket.tokens + (now - bucket.at) * self._limit.per_s
        bucket.tokens, bucket.at = min(refilled, self._limit.burst), now
        if bucket.tokens >= 1:
            bucket.tokens -= 1
            return 0.0
        return (1 - bucket.tokens) / self._limit.per_s


class RateLimits:
    """The limits of one service."""

    def __init__(
        self,
        *,
        requests_per_s: float,
        ingest_per_s: float,
        refused_per_s: float,
        monotonic: Callable[[], float],
    ) -> None:
        self.requests = RateLimit(Limit(requests_per_s, 5 * requests_per_s), monotonic)
        """By key: all that is not a trainer's."""
        self.ingest = RateLimit(Limit(ingest_per_s, 2 * ingest_per_s), monotonic)
        """By key: a trainer's frames, heartbeats and commands. One key may serve a thousand."""
        self.refused = RateLimit(Limit(refused_per_s, 60 * refused_per_s), monotonic)
        """By address: requests without a good key. One with a good key is never held up by it,
        since trainers and whoever guesses keys may share the address of a proxy."""
