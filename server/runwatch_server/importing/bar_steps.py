"""Finds the steps of printed rows that have none, by the progress bar that is drawn between them.

Hugging Face's Trainer prints its numbers as a dictionary without a step, and redraws its bar after
it.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

_BAR: Final = re.compile(r"%\|.{0,400}\|\s{0,8}(?P<done>\d{1,15})/(?P<total>\d{1,15})\s?\[")
_LEAST: Final = 0.9
"""Share of rows that must have a count of their own. With a buffered output, many rows come at
once, and no bar is drawn between them."""


@dataclass(slots=True)
class _Bar:
    """What a bar of one length showed."""

    lines: list[int] = field(default_factory=list[int])
    """Indices of its lines, rising."""
    counts: list[int] = field(default_factory=list[int])

    def beside(self, before: int, row: int, after: int) -> int | None:
        """The count between a row's line and its neighbours. After a row the bar is drawn anew;
        before it, it may be some steps old."""
        following = bisect_right(self.lines, row)
        if following < len(self.lines) and self.lines[following] < after:
            return self.counts[following]
        preceding = bisect_left(self.lines, row) - 1
        is_own = preceding >= 0 and self.lines[preceding] > before
        return self.counts[preceding] if is_own else None


def steps_beside(rows: Sequence[int], lines: Sequence[str]) -> list[int | None] | None:
    """The step of each row, whose lines these indices are; None if no bar counts them."""
    of_total = [
        (total, [bar.beside(*place) for place in _between(rows, len(lines))])
        for total, bar in _bars(lines).items()
    ]
    counted = [steps for total, steps in of_total if _count_rows(steps, total)]
    return max(counted, key=lambda steps: len(set(steps)), default=None)


def _bars(lines: Iterable[str]) -> dict[int, _Bar]:
    """The bars by their length: an evaluation has another than the training."""
    bars: defaultdict[int, _Bar] = defaultdict(_Bar)
    for index, line in enumerate(lines):
        if "%|" in line and (found := _BAR.search(line)) is not None:
            bar = bars[int(found["total"])]
            bar.lines.append(index)
            bar.counts.append(int(found["done"]))
    return bars


def _between(rows: Sequence[int], num_lines: int) -> Iterator[tuple[int, int, int]]:
    """Each row between the one before it and the one after it."""
    return zip((-1, *rows), rows, (*rows[1:], num_lines), strict=False)


def _count_rows(steps: Sequence[int | None], total: int) -> bool:
    """Whether a bar counts the steps of the run. One that falls from its end counts those of an
    epoch, and of how many is unknown."""
    known = [step for step in steps if step is not None]
    num_new = sum(after != before for before, after in pairwise((-1, *known)))
    begins_anew = any(after < before == total for before, after in pairwise(known))
    return bool(known) and num_new >= _LEAST * len(steps) and not begins_anew
