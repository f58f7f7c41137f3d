"""Steps that are stored and cannot be read: named, and never a wrong value in their place."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from runwatch.vocabulary import RunId


class GapReason(StrEnum):
    LOST = "lost"
    """The object is not there any more."""
    LATE = "late"
    """The object store does not answer now: the same question may be answered later."""
    CORRUPT = "corrupt"
    """What is there is not what was written."""


@dataclass(frozen=True, slots=True, order=True)
class Gap:
    """Consecutive steps without values."""

    first_step: int
    last_step: int
    reason: GapReason
    where: str
    """The object, or the frame."""
    segment: int


class GapObserver(Protocol):
    """Hears of each gap that a reader met, each time; on the event loop; must not block."""

    def observe_gaps(self, run_id: RunId, attempt: int, rank: int, gaps: Sequence[Gap]) -> None: ...


class NobodyHears:
    """For readers outside of the service."""

    def observe_gaps(self, run_id: RunId, attempt: int, rank: int, gaps: Sequence[Gap]) -> None:
        """Nobody is told."""


def joined(gaps: Iterable[Gap]) -> list[Gap]:
    """Gaps in order of their steps, those of one reason that touch as one."""
    merged: list[Gap] = []
    for gap in sorted(gaps):
        last = merged[-1] if merged else None
        if last is not None and last.reason is gap.reason and gap.first_step <= last.last_step + 1:
            end = max(last.last_step, gap.last_step)
            merged[-1] = replace(last, last_step=end)
        else:
            merged.append(gap)
    return merged
