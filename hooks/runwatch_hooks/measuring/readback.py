"""Asynchronous copies of numbers from an accelerator to the host."""

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runwatch_hooks.measuring.marks import has_passed, set_mark

_ROOM_BYTES: Final = 2**20
_LEAST_DEPTH: Final = 16
_MOST_DEPTH: Final = 256
"""Limit on the steps that the host may be ahead. With a CUDA graph a step is a single launch, and
a driver queues a thousand of those before it makes the host wait."""


class Ticket:
    """Numbers that are being copied."""

    def __init__(self, values: Tensor, done: torch.Event | None) -> None:
        self._values = values
        self._done = done
        self.is_taken = False

    def is_there(self) -> bool:
        return has_passed(self._done)

    def values(self) -> NDArray[np.float32]:
        """(N,) a copy of the numbers. Only valid once `is_there`."""
        self.is_taken = True
        return self._values.numpy().copy()


class Readback:
    """A ring of pinned host memory into which rows from one device are copied.

    A copy to memory that is not pinned would be a sync, and so would waiting for a slot whose row
    has not been taken: if there is no free slot, the row is refused.
    """

    def __init__(self, num_values: int, device: torch.device, depth: int | None = None) -> None:
        """`depth` is the number of slots; by default as many as fit into a MiB, from 16 to 256."""
        depth = depth or min(max(_ROOM_BYTES // (4 * num_values), _LEAST_DEPTH), _MOST_DEPTH)
        self._device = device
        self.num_values = num_values
        on_host = device.type == "cpu"
        # Explicit, because a program may have changed torch's default device and dtype, and may be
        # in inference mode: what is made there can be written to only there.
        with torch.inference_mode(mode=False):
            self._ring = torch.empty(
                (depth, num_values), dtype=torch.float32, device="cpu", pin_memory=not on_host
            )
        self._tickets: list[Ticket | None] = [None] * depth
        self._next = 0

    def send(self, values: Tensor) -> Ticket | None:
        """Start copying (N,) float32 numbers; None if no slot is free."""
        slot = self._next % len(self._tickets)
        last = self._tickets[slot]
        if last is not None and not last.is_taken:
            return None
        self._next += 1
        row = self._ring[slot, : values.numel()]
        row.copy_(values, non_blocking=True)
        ticket = self._tickets[slot] = Ticket(row, set_mark(self._device))
        return ticket
