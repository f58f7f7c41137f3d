"""Memory, temperature and utilisation of a rank's accelerators, from their driver.

Needs no torch, because `runwatch doctor` uses it too.
"""

from runwatch_hooks.device_health.nvml import Nvml, NvmlError
from runwatch_hooks.device_health.sensors import DeviceSensors, open_sensors

__all__ = ["DeviceSensors", "Nvml", "NvmlError", "open_sensors"]
