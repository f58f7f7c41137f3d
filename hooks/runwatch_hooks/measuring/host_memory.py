"""Memory of the host that an accelerator copies from and to by itself."""

from typing import Final

import torch
from torch import Tensor

_WITHOUT: Final = ("cpu", "meta", "mps")
"""Devices whose copies need none: MPS shares the host's memory."""


def locks_pages(device: torch.device) -> bool:
    """Whether copies to and from a device want page-locked memory: with any other, the driver
    waits for all that is queued before it copies."""
    return device.type not in _WITHOUT


def to_device(numbers: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device, behind what is queued there; itself, where it is there already.

    What comes from the host or another device is waited for by nobody. The page-locked copy in
    between is torch's allocator's, which gives it to nobody else before the device has read it.
    """
    if numbers.device.type == "cpu" and locks_pages(device):
        numbers = numbers.pin_memory()
    return numbers.to(device, non_blocking=device.type != "cpu")


def divisor_of(scale: Tensor | None, device: torch.device) -> Tensor | float:
    """What gradients on a device are to be divided by; a scale on the host is known there."""
    if scale is None:
        return 1.0
    return float(scale) if scale.device.type == "cpu" else to_device(scale, device)
