"""How long things are kept, and what of a run has had its time; pure."""

import math
from dataclasses import dataclass

import msgspec


class Ages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Days after a run's end; null: as the project, or else the service, has it. 0: for ever."""

    raw_days: float | None = None
    """Frames as they were received, in the database or packed, and histograms."""
    evidence_days: float | None = None
    """Those of the frames that stand around an alert; never less than the others."""
    rollup_days: float | None = None
    """Sums of layers' stats over steps; never less than frames. Metrics stay for ever."""

    def over(self, lower: "Ages") -> "Ages":
        """With what is null here as it is there."""
        return Ages(
            lower.raw_days if self.raw_days is None else self.raw_days,
            lower.evidence_days if self.evidence_days is None else self.evidence_days,
            lower.rollup_days if self.rollup_days is None else self.rollup_days,
        )


@dataclass(frozen=True, slots=True)
class Kept:
    """How many days after a run's end each part goes; infinity: never."""

    raw_days: float
    evidence_days: float
    rollup_days: float


@dataclass(frozen=True, slots=True)
class Due:
    """What of a run has had its time."""

    raw: bool = False
    evidence: bool = False
    rollups: bool = False

    @property
    def any(self) -> bool:
        return self.raw or self.evidence or self.rollups


def kept_of(ages: Ages) -> Kept:
    """`ages` are those in force: without a null."""
    raw_days = _days(ages.raw_days)
    # What stands for less goes no later than what it stands for: a reader who finds no frame
    # looks for sums, and for evidence.
    evidence_days = max(_days(ages.evidence_days), raw_days)
    rollup_days = max(_days(ages.rollup_days), raw_days)
    return Kept(raw_days, evidence_days, rollup_days)


def due_of(ages: Ages, *, age_days: float, is_pinned: bool) -> Due:
    """`ages` are those in force: without a null. `age_days`: since the run's end."""
    if is_pinned:
        return Due()
    kept = kept_of(ages)
    return Due(
        raw=age_days > kept.raw_days,
        evidence=age_days > kept.evidence_days,
        rollups=age_days > kept.rollup_days,
    )


def _days(days: float | None) -> float:
    assert days is not None, "the service's settings name every age"
    return days or math.inf
