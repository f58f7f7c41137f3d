"""How the accelerators of a rank are: memory, temperature, utilisation, as their driver says.

Without torch: `runwatch doctor` asks too, where there may be none.
"""

from runwatch_hooks.device_health.nvml import Nvml, NvmlError
from runwatch_hooks.device_health.sensors import DeviceSensors, open_sensors

__all__ = ["DeviceSensors", "Nvml", "NvmlError", "open_sensors"]
