"""The effective history of a run: which segment is in force for which steps. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, order=True)
class Stretch:
    """Consecutive steps of one segment."""

    attempt: int
    segment: int
    first_step: int
    last_step: int

    def clip(self, first_step: int, last_step: int) -> "Stretch | None":
        """The part of the stretch within these steps."""
        first, last = max(first_step, self.first_step), min(last_step, self.last_step)
        return Stretch(self.attempt, self.segment, first, last) if first <= last else None


class AttemptStart(Protocol):
    """When an attempt began."""

    @property
    def attempt(self) -> int: ...
    @property
    def live(self) -> bool: ...
    @property
    def started_at(self) -> float: ...


def attempts_in_time(attempts: Iterable[AttemptStart]) -> dict[int, int]:
    """Attempt number -> place in time, 0 for the oldest.

    Live attempts are in the order of their numbers, which were assigned as they began. For an
    attempt that was sent afterwards, the number only says when it was sent: it goes before the
    first one that started after it, by the trainers' clocks.
    """
    known = list(attempts)
    order = sorted((one for one in known if one.live), key=lambda one: one.attempt)
    for late in sorted((one for one in known if not one.live), key=lambda one: one.started_at):
        later = (place for place, one in enumerate(order) if one.started_at > late.started_at)
        order.insert(next(later, len(order)), late)
    return {one.attempt: place for place, one in enumerate(order)}


def effective_history(
    segments: Sequence[Stretch], places: Mapping[int, int] | None = None
) -> list[Stretch]:
    """For each step the newest segment that holds it, in the order of steps.

    `places` are the attempts' places in time; by default their numbers. Segments of an attempt that
    has no place are left out: their run is being removed, and its attempts go first.

    Within an attempt, a rollback undoes all steps after its target at once: they leave the history
    even before they are trained again. Between attempts nothing is undone, so that an attempt that
    is sent late or resumes from an early step hides only the steps that it replaces.
    """
    history: list[Stretch] = []
    undone_from: dict[int, int] = {}
    known = [one for one in segments if places is None or one.attempt in places]
    for segment in sorted(known, key=lambda one: _age(one, places), reverse=True):
        end = undone_from.get(segment.attempt)
        first = segment.first_step
        undone_from[segment.attempt] = first if end is None else min(first, end)
        held = segment if end is None else segment.clip(0, end - 1)
        if held is not None:
            history.extend(_without(held, history))
    return sorted(history, key=lambda stretch: stretch.first_step)


def undone(segments: Sequence[Stretch], history: Sequence[Stretch]) -> list[Stretch]:
    """The parts of segments that are not in the effective history, in the order of steps."""
    parts: list[Stretch] = []
    for segment in segments:
        own = (segment.attempt, segment.segment)
        parts += _without(segment, [one for one in history if (one.attempt, one.segment) == own])
    return sorted(parts, key=lambda stretch: stretch.first_step)


def _age(segment: Stretch, places: Mapping[int, int] | None) -> tuple[int, int]:
    attempt = segment.attempt if places is None else places[segment.attempt]
    return (attempt, segment.segment)


def _without(stretch: Stretch, taken: Sequence[Stretch]) -> list[Stretch]:
    """The parts of a stretch that are in none of the others."""
    parts: list[Stretch] = []
    first = stretch.first_step
    for other in sorted(taken, key=lambda other: other.first_step):
        before = stretch.clip(first, other.first_step - 1)
        if before is not None:
            parts.append(before)
        first = max(first, other.last_step + 1)
    rest = stretch.clip(first, stretch.last_step)
    return parts if rest is None else [*parts, rest]
