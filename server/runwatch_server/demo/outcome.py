"""The demo's result, and whether it is what was promised. No I/O."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from runwatch.nonfinite import to_json

LAST_STEPS: Final = 50
"""A run is judged by its mean loss over this many last steps."""

WITHIN: Final = 0.02
"""The protected run's final loss may differ from the clean one's by this share."""
RUINED: Final = 0.20
"""The unprotected run's final loss must be worse by at least this share, or there was nothing to
protect from."""
SEEN_WITHIN_STEPS: Final = 3


class Mode(StrEnum):
    """The three trainings, with the same seed, model and text."""

    CLEAN = "clean"
    UNPROTECTED = "unprotected"
    PROTECTED = "protected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The facts of a completed demo."""

    fault_step: int
    detected_step: int | None
    """The step at which an alert fired on the protected run; None if none did."""
    rolled_back_at: int | None
    """The step after which the protected run went back."""
    rolled_back_to: int | None
    losses: dict[Mode, Sequence[float]]
    """The losses of every step that counts."""
    stored_losses: Sequence[float]
    """The protected run's history, as the service returns it."""
    false_alerts: int
    """Number of warnings and critical alerts that fired on the clean run."""
    url: str

    def final_loss(self, mode: Mode) -> float:
        return statistics.fmean(self.losses[mode][-LAST_STEPS:])

    def ratio(self, mode: Mode) -> float:
        """Final loss as a multiple of the clean run's."""
        return self.final_loss(mode) / self.final_loss(Mode.CLEAN)

    @property
    def steps_repeated(self) -> int | None:
        """Steps that were trained twice because of the rollback."""
        if self.rolled_back_at is None or self.rolled_back_to is None:
            return None
        return self.rolled_back_at + 1 - self.rolled_back_to

    @property
    def is_identical(self) -> bool:
        """Whether the protected run's history is the clean one's, bit by bit."""
        return list(self.losses[Mode.PROTECTED]) == list(self.losses[Mode.CLEAN])

    def shortcomings(self) -> list[str]:
        """A description of every promise that was not kept; empty if the demo worked."""
        return [words for holds, words in self._promises() if not holds]

    def _promises(self) -> list[tuple[bool, str]]:
        protected, unprotected = self.ratio(Mode.PROTECTED), self.ratio(Mode.UNPROTECTED)
        seen, back = self.detected_step, self.rolled_back_to
        is_seen = seen is not None and 0 <= seen - self.fault_step <= SEEN_WITHIN_STEPS
        is_stored = list(self.stored_losses) == list(self.losses[Mode.PROTECTED])
        return [
            (is_seen, f"the fault at step {self.fault_step} was seen at step {seen}"),
            (back is not None and back <= self.fault_step, f"the run went back to step {back}"),
            (
                abs(protected - 1) <= WITHIN,
                f"the protected run ended at {protected:.3f} times the clean loss",
            ),
            (
                math.isnan(unprotected) or unprotected >= 1 + RUINED,
                f"the unprotected run ended at only {unprotected:.3f} times the clean loss",
            ),
            (is_stored, "the service's history of the protected run is not the trainer's"),
            (self.false_alerts == 0, f"the clean run had {self.false_alerts} warnings or pages"),
        ]

    def to_document(self) -> dict[str, object]:
        """The facts for machines (docs/design.md, section 4.6)."""
        return {
            "fault_step": self.fault_step,
            "detected_step": self.detected_step,
            "rolled_back_to": self.rolled_back_to,
            "final_loss": {
                mode.value: to_json(self.final_loss(mode))
                for mode in (Mode.CLEAN, Mode.PROTECTED, Mode.UNPROTECTED)
            },
            "url": self.url,
        }
