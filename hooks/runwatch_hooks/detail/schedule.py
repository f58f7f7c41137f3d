"""At which steps histograms and activations are taken; pure."""

from dataclasses import dataclass
from typing import Final

FIRST_STEP: Final = 2
"""Of a process's own steps, the first that activations are looked at in: torch.compile traces a
model in its first calls, and would compile it once with forward hooks and once without."""


@dataclass(frozen=True, slots=True)
class Due:
    """What is taken of one step."""

    histograms: bool = False
    activations: bool = False


class Schedule:
    """Every so many steps, and all of those that a command asks for."""

    def __init__(self, histograms: int | None, activations: int | None) -> None:
        """Steps between two; None: never, unless asked."""
        self._histograms = histograms
        self._activations = activations
        self._asked_until = 0
        self._num_steps = 0

    def ask(self, next_step: int, num_steps: int) -> None:
        """All of the next steps, from this one on."""
        self._asked_until = next_step + num_steps

    def forget(self, next_step: int) -> None:
        """After a rollback: what was asked for was of steps that are trained again."""
        self._asked_until = min(self._asked_until, next_step)

    def next(self, step: int) -> Due:
        """What is taken of the step that is about to be trained."""
        self._num_steps += 1
        is_asked = step < self._asked_until
        return Due(
            histograms=is_asked or _is_turn(step, self._histograms),
            activations=(is_asked or _is_turn(step, self._activations))
            and self._num_steps > FIRST_STEP,
        )


def _is_turn(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0
