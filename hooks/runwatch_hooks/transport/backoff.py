"""How long to wait before asking a service again that did not answer."""

import math
from dataclasses import dataclass
from typing import Final

_FIRST_S: Final = 0.5
_LONGEST_S: Final = 60.0
_LARGEST_EXPONENT: Final = 7
"""0.5 s doubled seven times exceeds the longest pause; further powers would only overflow."""


@dataclass(slots=True)
class Backoff:
    """Exponential backoff with jitter, so that many trainers do not ask at the same time."""

    num_failures: int = 0

    def failed(self, jitter: float, retry_after_s: float | None = None) -> float:
        """Seconds until the next try. `jitter` is a random number from 0 to 1.

        A pause that the service asked for is extended by up to a half, and never shortened. It is
        at least 0.5 s, or a wish for no pause would let all trainers ask as fast as they can.
        """
        exponent = min(self.num_failures, _LARGEST_EXPONENT)
        self.num_failures += 1
        if retry_after_s is not None:
            return max(retry_after_s, _FIRST_S) * (1 + jitter / 2)
        return min(math.ldexp(_FIRST_S, exponent), _LONGEST_S) * (1 - jitter / 2)

    def succeeded(self) -> None:
        self.num_failures = 0
