"""At which steps histograms and activations are measured."""

from dataclasses import dataclass
from typing import Final

FIRST_STEP: Final = 2
"""The first step of a process in which activations are measured. torch.compile traces a model in
its first calls, and would compile it once with forward hooks and once without."""


@dataclass(frozen=True, slots=True)
class Due:
    """What is measured in one step."""

    histograms: bool = False
    activations: bool = False


class Schedule:
    """Measures at fixed intervals, and at all steps that a command asks for."""

    def __init__(self, histograms: int | None, activations: int | None) -> None:
        """Intervals in steps; None: only when asked."""
        self._histograms = histograms
        self._activations = activations
        self._asked_until = 0
        self._num_steps = 0

    def ask(self, next_step: int, num_steps: int) -> None:
        """Measure everything at `num_steps` steps, from `next_step` on."""
        self._asked_until = max(self._asked_until, next_step + num_steps)

    def forget(self, next_step: int) -> None:
        """After a rollback: a request was for the steps before it, and is not continued."""
        self._asked_until = min(self._asked_until, next_step)

    def next(self, step: int) -> Due:
        """What to measure in the step that is about to be trained."""
        self._num_steps += 1
        is_asked = step < self._asked_until
        return Due(
            histograms=is_asked or _is_turn(step, self._histograms),
            activations=(is_asked or _is_turn(step, self._activations))
            and self._num_steps > FIRST_STEP,
        )


def _is_turn(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0
