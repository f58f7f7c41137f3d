"""Signs in a run's events before an alert began, and in the course of its series afterwards."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from runwatch.number_texts import count, counted
from runwatch.omissions import OMISSION, Omission, Why
from runwatch.rules.diagnosis import Sign
from runwatch.rules.evidence import Departure, Recorded
from runwatch.stalls import Held, Stage, Stall, StalledRank
from runwatch_server.alerts.diagnosis.run_words import words_of_event
from runwatch_server.alerts.records import AlertRecord, RunEvent

_RESUMED_STEPS: Final = 500
"""A fault of a resume shows within this many steps."""
_ROLLED_BACK_STEPS: Final = 200
_FIRST_STEPS: Final = 50
_PHASE_STEPS: Final = 64
_MOST_RANKS: Final = 2
_OF_OMISSION: Final = {
    Why.NO_OPTIMIZER: (Sign.NO_OPTIMIZER, "the hook saw no optimizer step them"),
    Why.NO_GRADIENT: (Sign.NO_GRADIENT, "the hook saw no gradient reach them"),
    Why.NOT_REDUCED: (
        Sign.NOT_REDUCED,
        "a DistributedDataParallel holds them, and they differ since the first comparison",
    ),
}
_OF_STAGE: Final = {Stage.DATA: Sign.STALLED_IN_DATA, Stage.SAVING: Sign.STALLED_IN_SAVING}
_ON_DISK: Final = (Held.ON_DISK, Held.CHILD_ON_DISK)
_OF_THE_HOOK: Final = (
    "grad_stage",
    "renamed",
    "snapshot_pace",
    "diagnostic_bundle",
    "guarded",
    "guard_relearned",
    "sampling",
)
"""Events that concern how a run is measured, or what was recorded of a fault; they change nothing
before it."""

Starts = Mapping[tuple[int, int], int]
"""The first step of each attempt and segment."""


@dataclass(frozen=True, slots=True)
class ChangedBefore:
    """Something that changed shortly before the onset."""

    step: int | None
    kind: str
    words: str


def run_signs(
    alert: AlertRecord, starts: Starts, events: Sequence[RunEvent], num_similar: int
) -> dict[Sign, str]:
    """The signs in what happened to the run itself."""
    found = _beginning(alert, starts)
    if num_similar:
        found[Sign.REPEATED] = (
            f"{alert.rule} had fired {counted(num_similar, 'time')} before in this run"
        )
    for event in events:
        is_near = event.step is not None and alert.onset_step - event.step <= _PHASE_STEPS
        if event.kind == "phase" and is_near:
            found[Sign.PHASE_CHANGED] = f"{words_of_event(event)} at step {count(event.step)}"
        omission = Omission.of_detail(event.detail) if event.kind == OMISSION else None
        if omission is not None and omission.why in _OF_OMISSION:
            sign, words = _OF_OMISSION[omission.why]
            found[sign] = words
    return found


def stall_signs(stalled: Sequence[StalledRank]) -> dict[Sign, str]:
    """The signs in where ranks stand; of those that hold up others, or of all where all stand at
    one place."""
    found: dict[Sign, str] = {}
    apart = [one for one in stalled if one.is_apart]
    places = {one.stall.words for one in stalled}
    if apart or len(places) > 1:
        words = [f"rank {one.rank} stands {one.stall.words}" for one in stalled[:_MOST_RANKS]]
        found[Sign.RANKS_APART] = ", ".join(words)
    for one in apart or (stalled if len(places) == 1 else ()):
        for sign in _signs_of(one.stall):
            found.setdefault(sign, f"rank {one.rank} stands {one.stall.words}")
    return found


def _signs_of(stall: Stall) -> Iterator[Sign]:
    if stall.stage in _OF_STAGE:
        yield _OF_STAGE[stall.stage]
    if stall.held in _ON_DISK:
        yield Sign.STALLED_ON_DISK


def _beginning(alert: AlertRecord, starts: Starts) -> dict[Sign, str]:
    found: dict[Sign, str] = {}
    begun = min((step for (one, _), step in starts.items() if one == alert.attempt), default=0)
    since = alert.onset_step - begun
    if alert.attempt > 1 and since <= _RESUMED_STEPS:
        found[Sign.RESUMED] = (
            f"attempt {alert.attempt} began {counted(since, 'step')} before, at {count(begun)}"
        )
    elif since <= _FIRST_STEPS:
        found[Sign.FIRST_STEPS] = f"it began at step {count(since)} of the run"
    back = starts.get((alert.attempt, alert.segment), 0)
    if alert.segment > 0 and alert.onset_step - back <= _ROLLED_BACK_STEPS:
        found[Sign.ROLLED_BACK] = f"the run had gone back to step {count(back)}"
    return found


def course_signs(series: Mapping[str, Recorded], far: Mapping[str, Departure]) -> dict[Sign, str]:
    """Whether the series that left their usual range came back soon."""
    for name in ("grad_norm", "loss"):
        if name not in far:
            continue
        gone = far[name]
        after = series[name].since(gone.step).values_N[:16]
        distance = abs(gone.value - gone.before)
        num_far = int((~(np.abs(after - gone.before) <= 0.5 * distance)).sum())
        if len(after) >= 8 and num_far <= 3:
            return {Sign.ONE_STEP: f"{name} was back after {counted(num_far, 'step')}"}
        if num_far >= 8:
            return {Sign.STAYED: f"{name} did not come back within {len(after)} rows"}
    return {}


def bundles_of(events: Sequence[RunEvent]) -> list[str]:
    """Paths of the diagnostic bundles that were written."""
    return [
        str(event.detail["path"])
        for event in events
        if event.kind == "diagnostic_bundle" and "path" in event.detail
    ]


def changed_before(
    events: Sequence[RunEvent], *of_signs: Mapping[Sign, str]
) -> list[ChangedBefore]:
    """What is known to have changed before the onset: events first, then what the series show."""
    told = [
        ChangedBefore(event.step, event.kind, words_of_event(event))
        for event in events
        if event.kind not in _OF_THE_HOOK
    ]
    changes = (
        *(Sign.LR_JUMPED, Sign.LR_ROSE, Sign.WARMUP_ENDED, Sign.LR_ZERO, Sign.SCALE_FELL),
        *(Sign.RESUMED, Sign.ROLLED_BACK),
    )
    seen = {sign: words for signs in of_signs for sign, words in signs.items()}
    return told + [ChangedBefore(None, sign, seen[sign]) for sign in changes if sign in seen]
