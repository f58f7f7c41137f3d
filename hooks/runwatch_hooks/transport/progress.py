"""What the trainer is doing, as the training thread last said."""

from dataclasses import dataclass

from runwatch.vocabulary import Phase


@dataclass(frozen=True, slots=True)
class Progress:
    """Replaced as a whole, so that the sender never reads half of a change."""

    last_step: int | None
    """None before the first step."""
    phase: Phase
    lr_scale: float
    since: float
    """When the last step ended, or the attempt began; by the monotonic clock."""

    @property
    def next_step(self) -> int:
        return 0 if self.last_step is None else self.last_step + 1
