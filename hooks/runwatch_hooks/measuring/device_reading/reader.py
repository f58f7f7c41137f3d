"""What is asked of whoever reads tensors on an accelerator."""

from collections.abc import Sequence
from typing import Final, Protocol

from torch import Tensor

from runwatch_hooks.measuring.sampled_updates import Samples

NORM: Final = 0
GREATEST: Final = 1
NUM_NONFINITE: Final = 2
ZERO_SHARE: Final = 3


class DeviceSamples(Samples, Protocol):
    """`Samples` of tensors of one device, which queue their work there. What they give is good
    until the next step."""

    def broken(self) -> Tensor:
        """(T,) float32, once remembered: NaN where an element is not finite, and not recorded
        elsewhere."""
        ...


class DeviceReader(Protocol):
    """A way to read tensors of one device. Queues its work there, and waits for none of it."""

    def read(self, flats: Sequence[Tensor]) -> Tensor:
        """(4, N) float32 on the device, good until the next reading: NORM, GREATEST magnitude,
        number of NUM_NONFINITE elements and ZERO_SHARE of each, in order.

        `flats` are contiguous, not empty, and of real floating-point numbers.
        """
        ...

    def open_samples(self, tensors: Sequence[Tensor], samples: Sequence[Tensor]) -> DeviceSamples:
        """Samples of tensors to be followed; `samples` are views of them, in one dimension."""
        ...
