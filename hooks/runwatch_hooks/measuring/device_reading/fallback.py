"""By our kernel while it works, and by torch's operations from the moment when it does not."""

import importlib
import importlib.util
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from runwatch_hooks.faults import Faults
from runwatch_hooks.measuring.device_reading.foreach import ForeachReader
from runwatch_hooks.measuring.device_reading.reader import DeviceReader


def has_kernel(device: torch.device) -> bool:
    """Whether there is something to compile our kernel for a device: CUDA, or ROCm, which torch
    calls by the same name."""
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None


def open_kernel(device: torch.device) -> DeviceReader:
    """Raises whatever a Triton that does not fit this torch, or this machine, may raise."""
    module = importlib.import_module("runwatch_hooks.measuring.device_reading.grouped")
    reader: DeviceReader = module.GroupedReader(device)
    return reader


class GradientsOnDevice:
    """Reads the gradients of one device. A kernel that fails once is not asked again."""

    def __init__(
        self,
        device: torch.device,
        faults: Faults,
        open_fast: Callable[[torch.device], DeviceReader] | None = None,
    ) -> None:
        """`open_fast` makes the reader to be used while it works; by default our kernel's, where
        there is Triton. It is made at the first reading."""
        self._device = device
        self._faults = faults
        self._open_fast = open_fast or (open_kernel if has_kernel(device) else None)
        self._fast: DeviceReader | None = None
        self._always = ForeachReader()

    def read(self, flats: Sequence[Tensor]) -> Tensor:
        """As `DeviceReader.read`. What cannot be compiled or launched is told as a fault, once."""
        if self._open_fast is not None:
            with self._faults.guard("kernel", self._give_up):
                if self._fast is None:
                    self._fast = self._open_fast(self._device)
                return self._fast.read(flats)
        return self._always.read(flats)

    def _give_up(self) -> None:
        self._open_fast = self._fast = None
