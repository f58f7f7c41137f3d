"""The interfaces for reading tensors on an accelerator."""

from collections.abc import Sequence
from typing import Final, Protocol

from torch import Tensor

from runwatch_hooks.measuring.sampled_updates import Samples

NORM: Final = 0
GREATEST: Final = 1
NUM_NONFINITE: Final = 2
ZERO_SHARE: Final = 3


class DeviceSamples(Samples, Protocol):
    """`Samples` of tensors on one device, which queue their work there. Returned tensors are valid
    until the next step."""

    def broken(self) -> Tensor:
        """(T,) float32, after `remember`: NaN if an element of the sample is non-finite, and 'not
        recorded' otherwise."""
        ...


class DeviceReader(Protocol):
    """Reads tensors of one device. Queues its work there, and does not wait for it."""

    def read(self, flats: Sequence[Tensor]) -> Tensor:
        """(4, N) float32 on the device, valid until the next reading. Rows are NORM, GREATEST
        magnitude, NUM_NONFINITE elements, and ZERO_SHARE.

        `flats` must be contiguous, not empty, and of real floating-point dtypes.
        """
        ...

    def finish_ratios(self, stats: Tensor, norms: Tensor, sparse_above: Tensor) -> None:
        """Turn the squared norms of updates in (S, T) `stats` into ratios to the (T,) norms of the
        weights, in place.

        'Not recorded' remain those that are, and become those of weights whose norm is 0 and those
        that the sample has missed: a step changed only a few rows, as of an embedding, and the
        sample contains none of them. So it is if nothing in the sample moved although the gradient
        is not all zeros and its share of zeros is above (T,) `sparse_above`.
        """
        ...

    def open_samples(self, tensors: Sequence[Tensor], samples: Sequence[Tensor]) -> DeviceSamples:
        """Samples of tensors to follow; `samples` are one-dimensional views of them."""
        ...
