"""What is asked of whoever reads gradients on an accelerator."""

from collections.abc import Sequence
from typing import Final, Protocol

from torch import Tensor

NORM: Final = 0
GREATEST: Final = 1
NUM_NONFINITE: Final = 2
ZERO_SHARE: Final = 3


class DeviceReader(Protocol):
    """A way to read tensors of one device. Queues its work there, and waits for none of it."""

    def read(self, flats: Sequence[Tensor]) -> Tensor:
        """(4, N) float32 on the device, good until the next reading: NORM, GREATEST magnitude,
        number of NUM_NONFINITE elements and ZERO_SHARE of each, in order.

        `flats` are one-dimensional, contiguous, not empty, and of real floating-point numbers.
        """
        ...
