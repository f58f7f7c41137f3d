"""Reads with the Triton kernel while it works, and with torch operations once it has failed."""

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
    """Whether the Triton kernel can be compiled for a device: CUDA, or ROCm, which torch calls
    "cuda" as well."""
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None


def open_kernel(device: torch.device) -> DeviceReader:
    """The kernel's reader. A Triton that does not fit this torch or machine may raise anything."""
    module = importlib.import_module("runwatch_hooks.measuring.device_reading.grouped")
    reader: DeviceReader = module.GroupedReader(device)
    return reader


class GradientsOnDevice:
    """Reads the gradients of one device. A kernel that failed once is not tried again."""

    def __init__(
        self,
        device: torch.device,
        faults: Faults,
        open_fast: Callable[[torch.device], DeviceReader] | None = None,
    ) -> None:
        """`open_fast` creates the preferred reader, at the first reading; by default the Triton
        kernel's, if Triton is installed."""
        self._device = device
        self._faults = faults
        self._open_fast = open_fast or (open_kernel if has_kernel(device) else None)
        self._fast: DeviceReader | None = None
        self._always = ForeachReader()

    def read(self, flats: Sequence[Tensor]) -> Tensor:
        """Like `DeviceReader.read`. A failure to compile or launch is reported as a fault, once."""
        with self._faults.guard("kernel", self._give_up):
            if (fast := self._working()) is not None:
                return fast.read(flats)
        return self._always.read(flats)

    def finish_ratios(self, stats: Tensor, norms: Tensor, sparse_above: Tensor) -> None:
        """Like `DeviceReader.finish_ratios`."""
        with self._faults.guard("kernel", self._give_up):
            if (fast := self._working()) is not None:
                fast.finish_ratios(stats, norms, sparse_above)
                return
        self._always.finish_ratios(stats, norms, sparse_above)

    def open_samples(self, tensors: Sequence[Tensor], samples: Sequence[Tensor]) -> DeviceSamples:
        """Like `DeviceReader.open_samples`."""
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
    """Uses the kernels while they work. If they fail to compare, the step has no update ratios."""

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
