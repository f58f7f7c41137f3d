"""Stored steps that cannot be read: they are reported, and never replaced by wrong values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from runwatch.vocabulary import RunId


class GapReason(StrEnum):
    LOST = "lost"
    """The object does not exist any more."""
    LATE = "late"
    """The object store does not answer now; it may later."""
    CORRUPT = "corrupt"
    """The stored bytes are not those that were written."""


@dataclass(frozen=True, slots=True, order=True)
class Gap:
    """Consecutive steps without values."""

    first_step: int
    last_step: int
    reason: GapReason
    where: str
    """The object or the frame."""
    segment: int


class GapObserver(Protocol):
    """Is told of every gap, each time a reader meets it; on the event loop, must not block."""

    def observe_gaps(self, run_id: RunId, attempt: int, rank: int, gaps: Sequence[Gap]) -> None: ...


class NoGapObserver:
    """An observer for readers outside of the service."""

    def observe_gaps(self, run_id: RunId, attempt: int, rank: int, gaps: Sequence[Gap]) -> None:
        """Does nothing."""


def joined(gaps: Iterable[Gap]) -> list[Gap]:
    """Gaps in the order of their steps; adjacent ones with the same reason are merged."""
    merged: list[Gap] = []
    for gap in sorted(gaps):
        last = merged[-1] if merged else None
        if last is not None and last.reason is gap.reason and gap.first_step <= last.last_step + 1:
            end = max(last.last_step, gap.last_step)
            merged[-1] = replace(last, last_step=end)
        else:
            merged.append(gap)
    return merged
