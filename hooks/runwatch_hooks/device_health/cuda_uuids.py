"""The UUIDs of the CUDA devices that a rank trains on."""

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import nn

from runwatch_hooks.ranks.shards import local_of

_CUDA: Final[Any] = torch.cuda  # torch leaves these functions without types


def uuids_of(modules: Mapping[str, nn.Module]) -> list[str]:
    """UUIDs of the CUDA devices that hold parameters, in order. If all parameters are in host
    memory although CUDA is in use (offloading), that of the current device.

    Torch numbers the devices visible through CUDA_VISIBLE_DEVICES, and NVML all devices, so only
    the UUID identifies a device for both. If CUDA is not initialised yet, it is not touched:
    initialising it would keep later forked processes from using it.
    """
    if not _CUDA.is_initialized():
        return []
    devices: dict[int, None] = {}
    for module in modules.values():
        for tensor in module.parameters():
            device = local_of(tensor).device
            if device.type == "cuda":  # a tensor's device always has an index
                devices[device.index] = None
    indices: list[int] = list(devices) or [_CUDA.current_device()]
    properties = [_CUDA.get_device_properties(index) for index in indices]
    return [str(one.uuid) for one in properties if hasattr(one, "uuid")]
