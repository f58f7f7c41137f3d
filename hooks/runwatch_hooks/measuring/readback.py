"""Numbers on their way from an accelerator to the host, while neither waits for the other."""

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runwatch_hooks.measuring.marks import has_passed, set_mark

_ROOM_BYTES: Final = 2**20
_LEAST_DEPTH: Final = 16
_MOST_DEPTH: Final = 256
"""Steps that the host may run ahead: those of a CUDA graph are a launch each, of which a driver
queues a thousand before it lets the host wait."""


class Ticket:
    """Numbers that have been sent for."""

    def __init__(self, values: Tensor, done: torch.Event | None) -> None:
        self._values = values
        self._done = done
        self.is_taken = False

    def is_there(self) -> bool:
        return has_passed(self._done)

    def values(self) -> NDArray[np.float32]:
        """(N,), owned. Only once `is_there`."""
        self.is_taken = True
        return self._values.numpy().copy()


class Readback:
    """A ring of pinned host memory into which rows of one device are copied.

    Memory that is not pinned would make the copy a wait; so would a slot used again before its
    row has arrived: then the row is refused.
    """

    def __init__(self, num_values: int, device: torch.device, depth: int | None = None) -> None:
        """`depth` is how many rows may be on their way; by default as many as a MiB holds."""
        depth = depth or min(max(_ROOM_BYTES // (4 * num_values), _LEAST_DEPTH), _MOST_DEPTH)
        self._device = device
        self.num_values = num_values
        on_host = device.type == "cpu"
        # A program may have set other defaults for both: `set_default_device("cuda")`, bfloat16.
        self._ring = torch.empty(
            (depth, num_values), dtype=torch.float32, device="cpu", pin_memory=not on_host
        )
        self._tickets: list[Ticket | None] = [None] * depth
        self._next = 0

    def send(self, values: Tensor) -> Ticket | None:
        """Begin to copy (N,) float32 numbers; None where no slot is free."""
        slot = self._next % len(self._tickets)
        last = self._tickets[slot]
        if last is not None and not last.is_taken:
            return None
        self._next += 1
        row = self._ring[slot, : values.numel()]
        row.copy_(values, non_blocking=True)
        ticket = self._tickets[slot] = Ticket(row, set_mark(self._device))
        return ticket
