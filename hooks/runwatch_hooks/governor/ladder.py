"""The rungs of how much is read, from everything to almost nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Sampled:
    """What is read of one step. Weights are never read without gradients."""

    gradients: bool
    weights: bool
    """`param_norm` and `update_ratio`."""


EVERYTHING: Final = Sampled(gradients=True, weights=True)
GRADIENTS: Final = Sampled(gradients=True, weights=False)
NOTHING: Final = Sampled(gradients=False, weights=False)


@dataclass(frozen=True, slots=True)
class Rung:
    """The intervals between readings, in steps."""

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
        """The share of steps of each kind; kinds that do not occur are left out."""
        everything, gradients = 1.0 / self.weights_every, 1.0 / self.gradients_every
        shares = {
            EVERYTHING: everything,
            GRADIENTS: gradients - everything,
            NOTHING: 1.0 - gradients,
        }
        return {kind: share for kind, share in shares.items() if share > 0.0}


LADDER: Final = (
    Rung(1, 1),
    # The weights are reduced first: norms change by less than the learning rate per step, while a
    # gradient that is not read is never seen.
    Rung(1, 8),
    Rung(2, 8),
    Rung(4, 8),
    Rung(8, 8),
    Rung(16, 16),
    Rung(32, 32),
    # A spike that lasts a hundred steps is still seen; reading even less would save little.
    Rung(64, 64),
)
"""Each rung reads less than the one before."""
