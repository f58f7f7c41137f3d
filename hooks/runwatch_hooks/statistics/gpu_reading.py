"""Reads tensors on an accelerator: by a Triton kernel while it works, else by torch operations."""

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from runwatch_hooks.faults import Faults, Guarded
from runwatch_hooks.statistics.readback import absent
from runwatch_hooks.statistics.samples import Samples, TorchSamples, joined, sample
from runwatch_hooks.statistics.totals import GRAD_NORM, UPDATE_RATIO, ZERO_FRAC

NORM: Final = 0
GREATEST: Final = 1
NUM_NONFINITE: Final = 2
ZERO_SHARE: Final = 3


class DeviceSamples(Samples, Protocol):
    """`Samples` of tensors on one device, which queue their work there. Returned tensors are valid
    until the next step."""

    def broken(self) -> Tensor:
        """(T,) float32, after `remember`: NaN if an element of the sample is non-finite, and 'not
        recorded' otherwise."""
        ...


class DeviceReader(Protocol):
    """Reads tensors of one device. Queues its work there, and does not wait for it."""

    def read(self, flats: Sequence[Tensor]) -> Tensor:
        """(4, N) float32 on the device, valid until the next reading. Rows are NORM, GREATEST
        magnitude, NUM_NONFINITE elements, and ZERO_SHARE.

        `flats` must be contiguous, not empty, and of real floating-point dtypes.
        """
        ...

    def finish_ratios(self, stats: Tensor, norms: Tensor, sparse_above: Tensor) -> None:
        """Turn the squared norms of updates in (S, T) `stats` into ratios to the (T,) norms of the
        weights, in place.

        'Not recorded' remain those that are, and become those of weights whose norm is 0 and those
        that the sample has missed: a step changed only a few rows, as of an embedding, and the
        sample contains none of them. So it is if nothing in the sample moved although the gradient
        is not all zeros and its share of zeros is above (T,) `sparse_above`.
        """
        ...

    def open_samples(self, tensors: Sequence[Tensor], samples: Sequence[Tensor]) -> DeviceSamples:
        """Samples of tensors to follow; `samples` are one-dimensional views of them."""
        ...


_TORCH: Final[Any] = torch  # its foreach operations have no public names


class ForeachReader:
    """Implements `DeviceReader` in a few launches, however many tensors there are.

    Each gradient is read twice, for its norm and its greatest magnitude. A third reading is
    avoided: `nonfinite` is 1 if the greatest magnitude is non-finite (norm and magnitude are then
    NaN or infinite themselves), and zeros are counted in a sample of 1024 elements.
    """

    def read(self, flats: Sequence[Tensor]) -> Tensor:
        greatest = norms_of(flats, torch.inf)
        is_bad = (~greatest.isfinite()).float()
        return torch.stack([norms_of(flats, 2.0), greatest, is_bad, _zero_shares(flats)])

    def finish_ratios(self, stats: Tensor, norms: Tensor, sparse_above: Tensor) -> None:
        squares = stats[UPDATE_RATIO]
        is_sparse = torch.logical_and(stats[ZERO_FRAC] > sparse_above, stats[GRAD_NORM])
        is_missed = torch.logical_and(is_sparse, squares == 0.0)
        known = torch.logical_and(squares >= 0.0, norms)  # false where not recorded
        ratios = squares.sqrt() / norms
        torch.where(known > is_missed, ratios, absent(device=stats.device), out=squares)

    def open_samples(self, tensors: Sequence[Tensor], samples: Sequence[Tensor]) -> DeviceSamples:
        return TorchSamples(tensors, samples)


def _zero_shares(flats: Sequence[Tensor]) -> Tensor:
    """(T,) float32 share of zeros in a sample of each tensor."""
    samples = [sample(flat) for flat in flats]
    lengths = [one.numel() for one in samples]
    are_zero = (joined(samples) == 0).float()
    counts = _TORCH._foreach_norm(are_zero.split_with_sizes(lengths), 1.0)
    return torch.stack(_TORCH._foreach_div(counts, lengths))


def norms_of(flats: Sequence[Tensor], order: float) -> Tensor:
    """(T,) float32 norms, in a few launches per dtype, however many tensors there are.

    Elements are read in their own dtype, and only sums are wider: float32 copies would take twice
    the model's memory and three times the memory traffic.
    """
    norms: dict[int, Tensor] = {}
    for places, mates in _by_type(flats):
        # Sums of float64 stay float64: in float32 they could become infinite.
        dtype = None if mates[0].dtype == torch.float64 else torch.float32
        norms |= zip(places, _TORCH._foreach_norm(mates, order, dtype), strict=True)
    return torch.stack([norms[place].float() for place in range(len(flats))])


def _by_type(flats: Sequence[Tensor]) -> list[tuple[list[int], list[Tensor]]]:
    """Tensors grouped by dtype, with their indices. Dtypes with few operations (FP8) are copied to
    float32."""
    by_type: dict[torch.dtype, tuple[list[int], list[Tensor]]] = {}
    for place, flat in enumerate(flats):
        readable = flat.float() if flat.itemsize == 1 else flat
        places, mates = by_type.setdefault(readable.dtype, ([], []))
        places.append(place)
        mates.append(readable)
    return list(by_type.values())


def has_kernel(device: torch.device) -> bool:
    """Whether the Triton kernel can be compiled for a device: CUDA, or ROCm, which torch calls
    "cuda" as well."""
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None


def open_kernel(device: torch.device) -> DeviceReader:
    """The kernel's reader. A Triton that does not fit this torch or machine may raise anything."""
    module = importlib.import_module("runwatch_hooks.statistics.gpu_grouped")
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
