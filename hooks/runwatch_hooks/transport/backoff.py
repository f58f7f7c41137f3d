"""How long to leave a service alone that did not answer."""

import math
from dataclasses import dataclass
from typing import Final

_FIRST_S: Final = 0.5
_LONGEST_S: Final = 60.0
_LARGEST_EXPONENT: Final = 7
"""0.5 s doubled seven times is past the longest; further powers would only overflow."""


@dataclass(slots=True)
class Backoff:
    """Doubles with each failure in a row, with jitter so that trainers do not march in step."""

    num_failures: int = 0

    def failed(self, jitter: float, retry_after_s: float | None = None) -> float:
        """Seconds until the next try. `jitter` is drawn from 0 to 1.

        The service's own wish is stretched by up to a half, never cut short; one for no pause at
        all would have all trainers ask as fast as they can.
        """
        exponent = min(self.num_failures, _LARGEST_EXPONENT)
        self.num_failures += 1
        if retry_after_s is not None:
            return max(retry_after_s, _FIRST_S) * (1 + jitter / 2)
        return min(math.ldexp(_FIRST_S, exponent), _LONGEST_S) * (1 - jitter / 2)

    def succeeded(self) -> None:
        self.num_failures = 0
