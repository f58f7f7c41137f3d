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
    """A tensor of the host's on a device, behind what is queued there; nobody waits for it.

    The page-locked copy in between is torch's allocator's, which gives it to nobody else before
    the device has read it.
    """
    if not locks_pages(device):
        return numbers.to(device)
    return numbers.pin_memory().to(device, non_blocking=True)
