"""Asynchronous copies of 64-bit numbers from an accelerator, as pairs of float32."""

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runwatch_hooks.statistics.readback import Readback, Ticket

_DEPTH: Final = 4
"""Steps whose numbers may be in transit at once."""


class Lot:
    """(N, W) numbers of 64 bits, and the rows to which they belong."""

    def __init__(self, rows: list[int], values: Tensor, ticket: Ticket | None) -> None:
        self.rows = rows
        self._ticket = ticket
        self._shape = tuple(values.shape)
        self._is_real = values.dtype == torch.float64
        self._values = values if ticket is None else None

    def is_there(self) -> bool:
        return self._ticket is None or self._ticket.is_there()

    def values(self) -> NDArray[np.float64] | NDArray[np.int64]:
        if self._ticket is None:
            assert self._values is not None
            return self._values.numpy()
        bits = self._ticket.values()
        return (bits.view(np.float64) if self._is_real else bits.view(np.int64)).reshape(
            self._shape
        )


class Departures:
    """Rings of pinned memory, one for each device and kind of numbers, allocated when first needed.
    With one for all kinds, a step would take several of its places."""

    def __init__(self) -> None:
        self._rings: dict[tuple[torch.device, str], Readback] = {}
        self.num_lost = 0
        """Lots that were dropped because their ring was full."""

    def send(self, kind: str, rows: list[int], values: list[Tensor]) -> list[Lot]:
        """Start copying a step's numbers of one kind: one lot for each device, or none if its ring
        is full."""
        by_device: dict[torch.device, list[tuple[int, Tensor]]] = {}
        for row, value in zip(rows, values, strict=True):
            by_device.setdefault(value.device, []).append((row, value))
        lots: list[Lot] = []
        for device, held in by_device.items():
            together = torch.stack([value for _, value in held])
            ours = [row for row, _ in held]
            if device.type == "cpu":
                lots.append(Lot(ours, together, None))
                continue
            bits = together.view(torch.float32).reshape(-1)
            ticket = self._ring(device, kind, bits.numel()).send(bits)
            if ticket is None:
                self.num_lost += 1
            else:
                lots.append(Lot(ours, together, ticket))
        return lots

    def _ring(self, device: torch.device, kind: str, num_values: int) -> Readback:
        ring = self._rings.get((device, kind))
        if ring is None or ring.num_values < num_values:
            ring = self._rings[device, kind] = Readback(num_values, device, _DEPTH)
        return ring
