"""Which segment speaks for which step: the effective history of a run; pure."""

from collections.abc import Sequence
from dataclasses import dataclass


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


def effective_history(segments: Sequence[Stretch]) -> list[Stretch]:
    """For each step the newest segment that holds it, in order of steps.

    Within an attempt a rollback undoes all that came after it, at once: the undone steps leave
    the history even before they have been trained again. Between attempts nothing is undone, so
    that one sent late, or resumed from an early step, hides no more than it replaces.
    """
    history: list[Stretch] = []
    undone_from: dict[int, int] = {}
    for segment in sorted(segments, reverse=True):
        end = undone_from.get(segment.attempt)
        first = segment.first_step
        undone_from[segment.attempt] = first if end is None else min(first, end)
        held = segment if end is None else segment.clip(0, end - 1)
        if held is not None:
            history.extend(_without(held, history))
    return sorted(history, key=lambda stretch: stretch.first_step)


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
