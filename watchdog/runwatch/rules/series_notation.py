"""Series of a rule's test, in short: `1x200 50x3` is 200 times 1, then 3 times 50.

1x200         the value 1, 200 times
2-0.001x300   2, 1.999, 1.998, ... (300 values); `+` climbs
_  _x5        not recorded, once or five times
nan inf -inf  values like any other, `nanx3`
"""

import re
from typing import Final

from runwatch.nonfinite import ABSENT_64

MAX_SAMPLES: Final = 100_000

_NUMBER: Final = r"(?:[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)"
_PART: Final = re.compile(
    rf"(?P<value>_|nan|[+-]?inf|[+-]?{_NUMBER})(?P<slope>[+-]{_NUMBER})?(?:x(?P<times>[0-9]{{1,6}}))?"
)


def expand(text: str) -> list[float]:
    """The samples of a series. Raises ValueError that names the part that cannot be read."""
    samples: list[float] = []
    for part in text.split():
        match = _PART.fullmatch(part)
        if match is None:
            wanted = "wanted such as 1x200, 2-0.001x300, _, nan or inf"
            raise ValueError(f"found {part[:40]!r}, {wanted}")
        times = int(match["times"] or 1)
        if len(samples) + times > MAX_SAMPLES:
            raise ValueError(f"found more than {MAX_SAMPLES} samples, wanted at most as many")
        start = float(ABSENT_64) if match["value"] == "_" else float(match["value"])
        slope = float(match["slope"] or 0.0)
        samples += [start + slope * index if slope else start for index in range(times)]
    return samples
