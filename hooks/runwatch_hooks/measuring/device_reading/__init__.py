"""Reading tensors on an accelerator: by a Triton kernel, or by torch operations."""

from runwatch_hooks.measuring.device_reading.fallback import GradientsOnDevice
from runwatch_hooks.measuring.device_reading.foreach import norms_of
from runwatch_hooks.measuring.device_reading.reader import (
    GREATEST,
    NORM,
    NUM_NONFINITE,
    ZERO_SHARE,
    DeviceReader,
)

__all__ = [
    "GREATEST",
    "NORM",
    "NUM_NONFINITE",
    "ZERO_SHARE",
    "DeviceReader",
    "GradientsOnDevice",
    "norms_of",
]
