"""What one reading of tensors on an accelerator tells: by our kernel, or by torch's operations."""

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
