"""How large the elements of a tensor are: counts by powers of two, as they travel and are kept.

The bins are the same for every tensor, so that histograms of other layers, steps and runs can be
laid over one another, and none of them needs the tensor's own range to be known first.
"""

from enum import StrEnum
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from runwatch import zstd
from runwatch.errors import FrameError
from runwatch.layouts import MAX_NAME_BYTES

LOWEST_EXPONENT: Final = -40
NUM_EXPONENTS: Final = 80
"""Magnitudes from 2^-40 to below 2^40, one bin for each power of two."""
ZEROS: Final = 0
BELOW: Final = 1
"""Of magnitudes that are not zero and under 2^-40."""
FIRST_EXPONENT: Final = 2
ABOVE: Final = FIRST_EXPONENT + NUM_EXPONENTS
NONFINITE: Final = ABOVE + 1
NUM_BINS: Final = NONFINITE + 1

MAX_TENSORS: Final = 256
"""In one part: models of more tensors send several."""
_ROW_BYTES: Final = NUM_BINS * 8
_MAX_STEP: Final = 2**53

Counts = NDArray[np.uint64]
"""(L, NUM_BINS): how many elements of each of L tensors fall into each bin."""


class HistogramKind(StrEnum):
    """What the elements are of."""

    GRADIENTS = "gradients"
    """As they are measured: unscaled, before a clip."""
    WEIGHTS = "weights"
    """Before the step."""
    ACTIVATIONS = "activations"
    """What modules returned in the step."""


class Histograms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Those of one kind at one step, or a part of them."""

    step: int
    kind: HistogramKind
    names: tuple[str, ...]
    """Of layers, or of modules."""
    packed: bytes
    """The counts as little-endian uint64, row by row, by zstd: most of them are zero."""
    part: int = 0
    """Its place among the parts of its kind and step."""

    @property
    def num_bytes(self) -> int:
        """What it takes in a frame, about."""
        return len(self.packed) + sum(len(name.encode(errors="replace")) for name in self.names)

    def counts(self) -> Counts:
        """Raises FrameError where they are not as the names say."""
        wanted = len(self.names) * _ROW_BYTES
        try:
            declared = zstd.declared_bytes(self.packed)
            if declared != wanted:  # before a byte is unpacked
                raise FrameError(f"histograms: found {declared} bytes declared, wanted {wanted}")
            raw = zstd.decompress(self.packed)
        except zstd.ZstdError as error:
            raise FrameError(f"histograms: found no zstd frame ({error})") from error
        return np.frombuffer(raw, "<u8").reshape(len(self.names), NUM_BINS).astype(np.uint64)

    def check(self) -> None:
        """Raises FrameError for what cannot be kept."""
        if not 0 <= self.step <= _MAX_STEP:
            raise FrameError(f"histograms: found step {self.step}, wanted 0 to {_MAX_STEP}")
        if not 0 <= self.part < 2**16:
            raise FrameError(f"histograms: found part {self.part}, wanted 0 to {2**16 - 1}")
        if not 0 < len(self.names) <= MAX_TENSORS:
            raise FrameError(
                f"histograms: found {len(self.names)} names, wanted 1 to {MAX_TENSORS}"
            )
        for name in self.names:
            if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
                raise FrameError(
                    f"histograms: found a name of {len(name.encode())} bytes, "
                    f"wanted 1 to {MAX_NAME_BYTES}"
                )
        self.counts()


def pack_histograms(
    step: int, kind: HistogramKind, names: tuple[str, ...], counts: NDArray[np.int64]
) -> list[Histograms]:
    """(L, NUM_BINS) counts as they travel, in parts."""
    return [
        Histograms(
            step=step,
            kind=kind,
            names=names[start : start + MAX_TENSORS],
            packed=zstd.compress(counts[start : start + MAX_TENSORS].astype("<u8").tobytes()),
            part=start // MAX_TENSORS,
        )
        for start in range(0, len(names), MAX_TENSORS)
    ]
