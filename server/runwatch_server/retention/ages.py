"""Retention ages, and what of a run is due for removal. No I/O."""

import math
from dataclasses import dataclass
from enum import StrEnum

import msgspec


class Ages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Days after a run's end; 0: for ever; null: the project's value, or else the service's."""

    raw_days: float | None = None
    """Frames as they were received, in the database or packed, and histograms."""
    evidence_days: float | None = None
    """Frames around an alert; never shorter than other frames."""
    rollup_days: float | None = None
    """Rollups of layers' stats; never shorter than frames. Those of metrics stay for ever."""

    def over(self, lower: "Ages") -> "Ages":
        """These ages, with nulls filled in from `lower`."""
        return Ages(
            lower.raw_days if self.raw_days is None else self.raw_days,
            lower.evidence_days if self.evidence_days is None else self.evidence_days,
            lower.rollup_days if self.rollup_days is None else self.rollup_days,
        )


class Why(StrEnum):
    """Why frames are kept that are old enough to go."""

    PINNED = "pinned"
    EVIDENCE = "evidence"
    """They lie around an alert."""
    NOT_SUMMED_UP = "not_summed_up"
    LOST = "lost"
    """The run was never closed, so that its age does not count yet."""


@dataclass(frozen=True, slots=True)
class Kept:
    """How many days after a run's end each part is removed; infinity: never."""

    raw_days: float
    evidence_days: float
    rollup_days: float


@dataclass(frozen=True, slots=True)
class Due:
    """Which parts of a run are due for removal."""

    raw: bool = False
    evidence: bool = False
    rollups: bool = False

    @property
    def any(self) -> bool:
        return self.raw or self.evidence or self.rollups


def kept_of(ages: Ages) -> Kept:
    """`ages` are those in force, without nulls."""
    raw_days = _days(ages.raw_days)
    # Rollups and evidence stay at least as long as frames: a reader that finds no frame falls back
    # to them.
    evidence_days = max(_days(ages.evidence_days), raw_days)
    rollup_days = max(_days(ages.rollup_days), raw_days)
    return Kept(raw_days, evidence_days, rollup_days)


def due_of(ages: Ages, *, age_days: float, is_pinned: bool) -> Due:
    """`ages` are those in force, without nulls; `age_days` counts from the run's end."""
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
