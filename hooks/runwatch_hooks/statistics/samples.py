"""How far a step moved each tensor, estimated from a sample of its elements before and after.

Updates are light-tailed (an optimizer moves most elements about equally far), so 1024 elements give
their root mean square within 1 % (median; 3.5 % at p95, notes of the design). This holds for every
optimizer and includes weight decay, and takes 4 KiB per tensor instead of a copy of the model. A
sample of a *gradient* would miss what matters: an embedding's rows are mostly zero, and a NaN is
often alone.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from runwatch_hooks.statistics.dense import in_memory_order, num_parts
from runwatch_hooks.statistics.readback import Recent, absent, to_device
from runwatch_hooks.statistics.spread import spread_stride

NUM_SAMPLED: Final = 1024
"""At most so many, and rarely less than five in six: which stride is best depends on the shape."""
ALL_UP_TO: Final = 4096
"""A tensor with at most this many numbers is read completely, which is cheaper than a sample."""
_NUMBER_BYTES: Final = 8
"""Memory for each sampled number: its old and its new value."""
_TENSOR_BYTES: Final = 1024
"""Approximate memory for each tensor besides its sample."""
_ROOM: Final = 4
"""Limit on kept samples, as a multiple of what samples of all tensors take. Optimizers usually
recur at each step, but may be created anew each time for different tensors."""


def sample(tensor: Tensor) -> Tensor:
    """A view of fixed elements at a constant stride in memory, spread over all dimensions. Empty if
    no view is possible, or if the memory was freed."""
    ordered = in_memory_order(tensor)
    if ordered is None or ordered.data_ptr() == 0:
        return _nothing_of(tensor, tensor.device)
    flat = ordered.view(-1)
    if flat.numel() <= ALL_UP_TO:
        return flat
    return flat[:: spread_stride(tuple(ordered.shape), NUM_SAMPLED)]


def _nothing_of(tensor: Tensor, device: torch.device | None) -> Tensor:
    """An empty sample. Real like the others of a complex tensor: it is concatenated with them."""
    return torch.empty(0, dtype=tensor.dtype.to_real(), device=device)


class Samples(Protocol):
    """Samples of T tensors, before and after a step."""

    @property
    def kept(self) -> Sequence[Tensor]:
        """Tensors of our own, on the same device."""
        ...

    def remember(self) -> None:
        """A step is about to change the tensors: remember their current values."""
        ...

    @property
    def remembered(self) -> Tensor | None:
        """(N,) the elements of all samples before the step, concatenated."""
        ...

    def recall(self, elements: Tensor) -> None:
        """Set the remembered elements, of the same tensors at their old addresses."""
        ...

    def squares(self) -> Tensor:
        """(T,) squared norm of each tensor's change since `remember`, estimated from its sample;
        NaN for an empty sample."""
        ...


S = TypeVar("S", bound=Samples)

OpenSamples = Callable[[Sequence[Tensor], Sequence[Tensor]], S]
"""Opens samples, given the tensors and a sample view of each."""


@dataclass(frozen=True, slots=True, eq=False)
class _Plan(Generic[S]):
    """What stays the same from step to step about one optimizer's tensors."""

    slots: list[int]
    tensors: list[Tensor]
    """The strided ones: sparse tensors are not sampled."""
    addresses: list[int]
    """Their addresses when the samples were chosen."""
    forms: list[tuple[torch.dtype, torch.Size, tuple[int, ...]]]
    lengths: list[int]
    """Number of elements in each tensor's sample."""
    samples: S


class SampledUpdates(Generic[S]):
    """Compares fixed elements of tensors, all on one device, before and after a step."""

    def __init__(self, tensors: Sequence[Tensor], open_samples: OpenSamples[S]) -> None:
        self._tensors = tensors
        self._device = tensors[0].device if tensors else None
        self._open_samples = open_samples
        self._plans = self._no_plans()
        self._open: _Plan[S] | None = None

    @property
    def kept(self) -> Iterator[Tensor]:
        """Tensors of our own, on the same device."""
        for plan in self._plans.values():
            yield from plan.samples.kept

    def before(self, slots: Sequence[int]) -> tuple[list[int], S] | None:
        """Remember the elements of these tensors. Returns their slots and samples; None if there
        are no slots."""
        self._open = None
        if not slots:
            return None
        key = tuple(slots)
        plan = self._plans.get(key)
        if plan is not None and _has_moved(plan):
            self._plans, plan = self._no_plans(), None  # all: they would keep old memory alive
        if plan is None:
            plan = self._add_plan(key)
        plan.samples.remember()
        self._open = plan
        return plan.slots, plan.samples

    def after(self) -> tuple[list[int], Tensor] | None:
        """The remembered tensors' slots, and (T,) squared norms of their updates.

        None if nothing was remembered, or if a tensor has changed its dtype, shape or strides
        since. NaN for a tensor without a sample.
        """
        plan, self._open = self._open, None
        if plan is not None and _has_moved(plan):
            plan = self._follow(plan)
        return None if plan is None else (plan.slots, plan.samples.squares())

    def _follow(self, former: _Plan[S]) -> _Plan[S] | None:
        """Compare with the tensors at new addresses, after a step that assigned to `p.data`."""
        self._plans = self._no_plans()
        plan = self._add_plan(tuple(former.slots))
        remembered = former.samples.remembered
        is_alike = plan.forms == former.forms and plan.lengths == former.lengths
        if remembered is None or not is_alike:
            return None
        plan.samples.recall(remembered)
        return plan

    def _no_plans(self) -> Recent[tuple[int, ...], _Plan[S]]:
        return Recent(_ROOM * sum(map(_bytes_of, self._tensors)))

    def _add_plan(self, slots: tuple[int, ...]) -> _Plan[S]:
        plan = self._plan(slots)
        self._plans.put(slots, plan, sum(_bytes_of(self._tensors[slot]) for slot in slots))
        return plan

    def _plan(self, slots: Sequence[int]) -> _Plan[S]:
        tensors = [self._tensors[slot] for slot in slots]
        in_one_piece = [one for one in tensors if one.layout is torch.strided]
        samples = [self._sample(one) for one in tensors]
        return _Plan(
            slots=list(slots),
            tensors=in_one_piece,
            addresses=[one.data_ptr() for one in in_one_piece],
            forms=[(one.dtype, one.shape, one.stride()) for one in in_one_piece],
            lengths=[one.numel() for one in samples],
            samples=self._open_samples(tensors, samples),
        )

    def _sample(self, tensor: Tensor) -> Tensor:
        """The sample view; empty if the program has moved the tensor to another device."""
        if tensor.device == self._device:
            return sample(tensor)
        return _nothing_of(tensor, self._device)


def shares_of(tensors: Sequence[Tensor], samples: Sequence[Tensor]) -> list[float]:
    """How many numbers of each tensor one number of its sample stands for; NaN if it is empty."""
    return [
        num_parts(one) / held.numel() if held.numel() else math.nan
        for one, held in zip(tensors, samples, strict=True)
    ]


def _bytes_of(tensor: Tensor) -> int:
    """Approximate memory for sampling a tensor."""
    num = num_parts(tensor)
    return _TENSOR_BYTES + _NUMBER_BYTES * (num if num <= ALL_UP_TO else NUM_SAMPLED)


def joined(samples: Sequence[Tensor]) -> Tensor:
    """All samples concatenated, in float32 or wider. FP8 is converted first: torch cannot
    concatenate it with other types."""
    together = torch.cat([one.float() if one.dtype.itemsize == 1 else one for one in samples])
    return together if together.dtype.itemsize >= 4 else together.float()


def _has_moved(plan: _Plan[S]) -> bool:
    """Whether one of its tensors has a new address since the samples were chosen."""
    return plan.addresses != [one.data_ptr() for one in plan.tensors]


_TORCH: Final[Any] = torch  # its foreach operations have no public names


class TorchSamples:
    """Implements `Samples` without a sync: on an accelerator all work is queued."""

    def __init__(self, tensors: Sequence[Tensor], samples: Sequence[Tensor]) -> None:
        """`samples` are one-dimensional views of the tensors, all on one device."""
        device = samples[0].device
        self._samples = samples
        self._lengths = [one.numel() for one in samples]
        self._lengths_there = _put(self._lengths, torch.int64, device)
        self._shares = _put(shares_of(tensors, samples), torch.float32, device)
        self._nan = torch.full((len(samples),), torch.nan, dtype=torch.float32, device=device)
        self._absent = absent(len(samples), device=device)
        self._before: Tensor | None = None
        """(N,) the elements of all samples, concatenated."""

    @property
    def kept(self) -> Sequence[Tensor]:
        tables = (self._lengths_there, self._shares, self._nan, self._absent)
        return tables if self._before is None else (*tables, self._before)

    def remember(self) -> None:
        self._before = joined(self._samples)

    @property
    def remembered(self) -> Tensor | None:
        return self._before

    def recall(self, elements: Tensor) -> None:
        self._before = elements

    def broken(self) -> Tensor:
        """(T,) NaN if a remembered element is non-finite, and 'not recorded' otherwise."""
        if self._before is None:
            return self._absent
        sums = self._sums_within(self._before * 0.0)  # 0 for finite elements, NaN for others
        return torch.where(sums.isnan(), self._nan, self._absent)

    def squares(self) -> Tensor:
        before, self._before = self._before, None
        if before is None:
            return self._nan
        squares = joined(self._samples).sub_(before).square_()
        return self._sums_within(squares).mul_(self._shares)

    def _sums_within(self, together: Tensor) -> Tensor:
        """(T,) sums over each sample's elements, which must not be negative."""
        if together.device.type == "mps":  # it has no segment_reduce
            pieces = together.split_with_sizes(self._lengths)
            return torch.stack(_TORCH._foreach_norm(pieces, 1.0))
        return torch.segment_reduce(together, "sum", lengths=self._lengths_there, unsafe=True)


def _put(numbers: Sequence[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    return to_device(torch.tensor(numbers, dtype=dtype, device="cpu"), device)
