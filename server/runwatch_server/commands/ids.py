"""Ids that sort in the order of their creation, even within a millisecond."""

import secrets
from typing import Final

from runwatch.ulids import ulid
from runwatch_server.clock import Clock

_RANDOM_BITS: Final = 80


class OrderedIds:
    """ULIDs of one service: each is greater than the one before, even if the clock is set back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0

    def new(self) -> str:
        time_ms = int(self._clock.wall() * 1000)
        if time_ms > self._last >> _RANDOM_BITS:
            self._last = (time_ms << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
        else:
            self._last += 1
        low = self._last & ((1 << _RANDOM_BITS) - 1)
        return ulid(self._last >> _RANDOM_BITS, low.to_bytes(10, "big"))
