"""The messages between ranks in the store.

Every other rank puts batches for rank 0, numbered from 0, and rank 0 removes those it has read.
Rank 0 puts a single answer for all ranks, which replaces the previous one.
"""

import math
from typing import Final

import msgspec
import numpy as np

from runwatch_hooks.ranks.parts import Columns, PartRow
from runwatch_hooks.ranks.standing import Drift, Pace, Standing

BEFORE_THE_FIRST: Final = -1
"""In the place of a step: before the first one changed anything."""


class Trait(msgspec.Struct, frozen=True, array_like=True):
    """What a rank says of a parameter before the first step."""

    home: int
    """Identifies the module that holds it."""
    is_constant: bool
    """All its elements are the same, so that being equal says little."""
    is_marked: bool
    """The program marks it as this rank's own part of a larger one."""
    num_dimensions: int


class Fingerprint(msgspec.Struct, frozen=True, array_like=True):
    """Checksums of a rank's copies of some parameters after a step."""

    step: int
    """Or BEFORE_THE_FIRST."""
    ranks: tuple[int, ...]
    """The ranks that may hold copies, whose values are compared."""
    is_bound: bool
    """Whether a wrapper keeps the copies equal."""
    keys: bytes
    """(N,) uint32, little endian: identify the parameters."""
    values: bytes
    """Like `keys`: the checksums."""
    traits: tuple[Trait, ...] = ()
    """Of each parameter, before the first step."""


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """A message from another rank to rank 0."""

    columns: Columns | None = None
    """The columns of `rows`, if they have changed."""
    rows: tuple[PartRow, ...] = ()
    fingerprints: tuple[Fingerprint, ...] = ()
    broken: tuple[tuple[int, int], ...] = ()
    """(segment, step) of losses that were non-finite on the rank."""
    is_last: bool = False
    """The rank sends and reads nothing more."""
    paces: tuple[Pace, ...] = ()


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The message from rank 0 to all."""

    drifted: tuple[Drift, ...] | None = None
    """The ranks whose copies differ from most; None: there are no copies, as far as is known."""
    lags_s: bytes = b""
    """(R,) float32, little endian, by rank; NaN or missing: not known."""
    loss_gaps: bytes = b""
    """Like `lags_s`."""

    def standing_of(self, rank: int) -> Standing:
        drift = next((one for one in self.drifted or () if one.rank == rank), None)
        return Standing(
            None if self.drifted is None else drift is not None,
            _number_of(rank, self.lags_s),
            _number_of(rank, self.loss_gaps),
            drift,
        )


BATCH: Final = msgspec.msgpack.Decoder(Batch)
ANSWER: Final = msgspec.msgpack.Decoder(Answer)
ANSWER_KEY: Final = "answer"
EXIT_TIMEOUT_S: Final = 1.0
"""How long a process that ends without `finish` waits to send its last messages."""


def _number_of(rank: int, numbers: bytes) -> float:
    found = np.frombuffer(numbers, "<f4")[rank : rank + 1]
    return float(found[0]) if len(found) else math.nan


def batch_key(rank: int, number: int) -> str:
    return f"batch/{rank}/{number}"
