"""Which accelerators a rank trains on, by the names that their driver has for them."""

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import nn

from runwatch_hooks.ranks.shards import local_of

_CUDA: Final[Any] = torch.cuda  # torch leaves these functions without types


def uuids_of(modules: Mapping[str, nn.Module]) -> list[str]:
    """Of the CUDA devices on which parameters lie, in their order; where they lie in the host's
    memory for a device that is in use (offloading), that one.

    Torch counts what CUDA_VISIBLE_DEVICES lets it see, NVML all that is there: a number means
    another device to each, a UUID the same. Where nobody has used CUDA yet it is left alone: to
    ask for a device would keep later forks from using any.
    """
    if not _CUDA.is_initialized():
        return []
    devices: dict[int, None] = {}
    for module in modules.values():
        for tensor in module.parameters():
            device = local_of(tensor).device
            if device.type == "cuda":  # of a tensor the device has a number
                devices[device.index] = None
    indices: list[int] = list(devices) or [_CUDA.current_device()]
    properties = [_CUDA.get_device_properties(index) for index in indices]
    return [str(one.uuid) for one in properties if hasattr(one, "uuid")]
