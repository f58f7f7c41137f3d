"""By our kernel while it works, and by torch's operations from the moment when it does not."""

import importlib
import importlib.util
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from runwatch_hooks.faults import Faults, Guarded
from runwatch_hooks.measuring.device_reading.foreach import ForeachReader
from runwatch_hooks.measuring.device_reading.reader import DeviceReader, DeviceSamples
from runwatch_hooks.measuring.torch_samples import TorchSamples


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
        with self._faults.guard("kernel", self._give_up):
            if (fast := self._working()) is not None:
                return fast.read(flats)
        return self._always.read(flats)

    def open_samples(self, tensors: Sequence[Tensor], samples: Sequence[Tensor]) -> DeviceSamples:
        """As `DeviceReader.open_samples`."""
        with self._faults.guard("kernel", self._give_up):
            if (fast := self._working()) is not None:
                ours = fast.open_samples(tensors, samples)
                return _FallibleSamples(ours, tensors, samples, self._faults)
        return self._always.open_samples(tensors, samples)

    def _working(self) -> DeviceReader | None:
        if self._fast is None and self._open_fast is not None:
            self._fast = self._open_fast(self._device)
        return self._fast

    def _give_up(self) -> None:
        self._open_fast = self._fast = None


class _FallibleSamples:
    """By our kernels while they work. Where they fail to compare, no update of the step is told."""

    def __init__(
        self,
        fast: DeviceSamples,
        tensors: Sequence[Tensor],
        samples: Sequence[Tensor],
        faults: Faults,
    ) -> None:
        self._held = fast
        self._tensors = tensors
        self._samples = samples
        self._faults = faults

    @property
    def kept(self) -> Sequence[Tensor]:
        return self._held.kept

    def remember(self) -> None:
        with self._guarded():
            self._held.remember()
            return
        self._held.remember()

    @property
    def remembered(self) -> Tensor | None:
        return self._held.remembered

    def recall(self, elements: Tensor) -> None:
        self._held.recall(elements)

    def broken(self) -> Tensor:
        with self._guarded():
            return self._held.broken()
        return self._held.broken()

    def squares(self) -> Tensor:
        with self._guarded():
            return self._held.squares()
        return self._held.squares()

    def _guarded(self) -> Guarded:
        return self._faults.guard("kernel", self._give_up)

    def _give_up(self) -> None:
        self._held = TorchSamples(self._tensors, self._samples)
