"""What may be read of a step, from everything to almost nothing; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Sampled:
    """What is read of one step; the weights never without the gradients."""

    gradients: bool
    weights: bool
    """`param_norm` and `update_ratio`."""


EVERYTHING: Final = Sampled(gradients=True, weights=True)
GRADIENTS: Final = Sampled(gradients=True, weights=False)
NOTHING: Final = Sampled(gradients=False, weights=False)


@dataclass(frozen=True, slots=True)
class Rung:
    """Steps from one reading to the next."""

    gradients_every: int
    weights_every: int
    """A multiple of `gradients_every`."""

    def sampled(self, turn: int) -> Sampled:
        """What is read at a step, counted from 0 since the rung was entered."""
        if turn % self.gradients_every:
            return NOTHING
        return GRADIENTS if turn % self.weights_every else EVERYTHING

    @property
    def shares(self) -> Mapping[Sampled, float]:
        """Which part of the steps is read how; kinds that do not occur are left out."""
        everything, gradients = 1.0 / self.weights_every, 1.0 / self.gradients_every
        shares = {
            EVERYTHING: everything,
            GRADIENTS: gradients - everything,
            NOTHING: 1.0 - gradients,
        }
        return {kind: share for kind, share in shares.items() if share > 0.0}


LADDER: Final = (
    Rung(1, 1),
    # The weights first: a norm changes by less than the learning rate from step to step, while a
    # gradient that is left out is seen by nobody.
    Rung(1, 8),
    Rung(2, 8),
    Rung(4, 8),
    Rung(8, 8),
    Rung(16, 16),
    Rung(32, 32),
    # A spike that lasts for a hundred steps is still met; beyond it little is left to be saved.
    Rung(64, 64),
)
"""Each rung reads less than the one before."""
