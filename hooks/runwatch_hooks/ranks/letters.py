"""What ranks tell one another over the store, beside the training and off its thread.

Every other rank puts batches for rank 0, numbered from 0, and rank 0 removes what it has read.
Rank 0 puts one answer for all, in place of the one before.
"""

import math
from typing import Final

import msgspec
import numpy as np

from runwatch_hooks.ranks.parts import Columns, PartRow
from runwatch_hooks.ranks.standing import Pace, Standing


class Fingerprint(msgspec.Struct, frozen=True, array_like=True):
    """What a rank's copy of some parameters looks like after a step."""

    step: int
    key: int
    """Of which parameters: those of equal keys must be equal."""
    ranks: tuple[int, ...]
    """Those that hold a copy."""
    value: int


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """From a rank to rank 0."""

    columns: Columns | None = None
    """Where the columns of `rows` are others than before."""
    rows: tuple[PartRow, ...] = ()
    fingerprints: tuple[Fingerprint, ...] = ()
    broken: tuple[tuple[int, int], ...] = ()
    """Segment and step of losses that were not finite on the rank."""
    is_last: bool = False
    """The rank has nothing more to say, and asks nothing more."""
    paces: tuple[Pace, ...] = ()


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """From rank 0 to all."""

    drifted: tuple[int, ...] | None = None
    """The ranks whose copies are others than those of most; None: no copies were ever equal."""
    lags_s: bytes = b""
    """(R,) float32, little endian, by rank; NaN and a missing number: not known."""
    loss_gaps: bytes = b""
    """The same."""

    def standing_of(self, rank: int) -> Standing:
        return Standing(
            None if self.drifted is None else rank in self.drifted,
            _number_of(rank, self.lags_s),
            _number_of(rank, self.loss_gaps),
        )


BATCH: Final = msgspec.msgpack.Decoder(Batch)
ANSWER: Final = msgspec.msgpack.Decoder(Answer)
ANSWER_KEY: Final = "answer"
EXIT_TIMEOUT_S: Final = 1.0
"""How long a process that ends without `finish` gives its last letters."""


def _number_of(rank: int, numbers: bytes) -> float:
    found = np.frombuffer(numbers, "<f4")[rank : rank + 1]
    return float(found[0]) if len(found) else math.nan


def batch_key(rank: int, number: int) -> str:
    return f"batch/{rank}/{number}"
