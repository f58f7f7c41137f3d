"""Which segment speaks for which step: the effective history of a run; pure."""

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
        """What of it lies within these steps."""
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
    """Each attempt's place in time, 0 the oldest, by its number.

    Live attempts stand in the order of their numbers, which they were given as they came. The
    number of one that was sent afterwards says only when it was sent: it goes before the first
    that started after it, by the trainers' clocks.
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
    """For each step the newest segment that holds it, in order of steps.

    `places` are the attempts' places in time; without them their numbers count.

    Within an attempt a rollback undoes all that came after it, at once: the undone steps leave
    the history even before they have been trained again. Between attempts nothing is undone, so
    that one sent late, or resumed from an early step, hides no more than it replaces.
    """
    history: list[Stretch] = []
    undone_from: dict[int, int] = {}
    for segment in sorted(segments, key=lambda one: _age(one, places), reverse=True):
        end = undone_from.get(segment.attempt)
        first = segment.first_step
        undone_from[segment.attempt] = first if end is None else min(first, end)
        held = segment if end is None else segment.clip(0, end - 1)
        if held is not None:
            history.extend(_without(held, history))
    return sorted(history, key=lambda stretch: stretch.first_step)


def undone(segments: Sequence[Stretch], history: Sequence[Stretch]) -> list[Stretch]:
    """The parts of segments that the effective history leaves out, in order of steps."""
    parts: list[Stretch] = []
    for segment in segments:
        own = (segment.attempt, segment.segment)
        parts += _without(segment, [one for one in history if (one.attempt, one.segment) == own])
    return sorted(parts, key=lambda stretch: stretch.first_step)


def _age(segment: Stretch, places: Mapping[int, int] | None) -> tuple[int, int]:
    attempt = segment.attempt if places is None else places[segment.attempt]
    return (attempt, segment.segment)


def _without(stretch: Stretch, taken: Sequence[Stretch]) -> list[Stretch]:
    """The parts of a stretch that none of the others holds."""
    parts: list[Stretch] = []
    first = stretch.first_step
    for other in sorted(taken, key=lambda other: other.first_step):
        before = stretch.clip(first, other.first_step - 1)
        if before is not None:
            parts.append(before)
        first = max(first, other.last_step + 1)
    rest = stretch.clip(first, stretch.last_step)
    return parts if rest is None else [*parts, rest]
