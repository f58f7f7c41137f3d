"""Page-locked host memory, for asynchronous copies from and to accelerators."""

from typing import Final

import torch
from torch import Tensor

_WITHOUT: Final = ("cpu", "meta", "mps")
"""Devices whose copies do not need it: MPS shares the host's memory."""


def locks_pages(device: torch.device) -> bool:
    """Whether copies to and from a device need page-locked memory: otherwise the driver waits for
    all queued work before it copies."""
    return device.type not in _WITHOUT


def to_device(numbers: Tensor, device: torch.device) -> Tensor:
    """A tensor copied to a device asynchronously; the tensor itself if it is there already.

    The page-locked buffer in between is managed by torch's allocator, which does not reuse it
    before the device has read it.
    """
    if numbers.device.type == "cpu" and locks_pages(device):
        numbers = numbers.pin_memory()
    return numbers.to(device, non_blocking=device.type != "cpu")


def divisor_of(scale: Tensor | None, device: torch.device) -> Tensor | float:
    """What gradients on a device must be divided by: a float if the scale is on the host."""
    if scale is None:
        return 1.0
    return float(scale) if scale.device.type == "cpu" else to_device(scale, device)
