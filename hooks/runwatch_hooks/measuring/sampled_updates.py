"""How far a step moved each tensor, by a sample of its elements before and after.

Updates are light-tailed (an optimizer moves most elements about as far), so 1024 elements give
their root mean square to 1 % (median; 3.5 % at p95, notes of the design), for every optimizer,
weight decay included, at 4 KiB a tensor instead of a copy of the model. The same sample of a
*gradient* would miss what matters: an embedding's rows are mostly zero, a NaN is often alone.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from runwatch_hooks.measuring.dense import dense_view, num_parts
from runwatch_hooks.measuring.recent import Recent

NUM_SAMPLED: Final = 1024
ALL_UP_TO: Final = 4096
"""Numbers: a tensor with no more of them is taken whole, which costs less than to choose."""
_NUMBER_BYTES: Final = 8
"""Of one that is sampled: as it was, and as it is."""
_TENSOR_BYTES: Final = 1024
"""What is kept of a tensor beside its sample, about."""
_ROOM: Final = 4
"""Times what samples of all tensors take. Optimizers come back at each step, or are made anew each
time for others of the tensors."""


def sample(tensor: Tensor) -> Tensor:
    """A view of fixed elements, evenly spread in memory; empty where no view can be, or where the
    memory was freed.

    The stride has no factor in common with the length of a row, or the sample of a matrix
    would come from a few of its columns.
    """
    flat = dense_view(tensor)
    if flat is None or flat.data_ptr() == 0:
        return tensor.new_empty(0, layout=torch.strided)
    if flat.numel() <= ALL_UP_TO:
        return flat
    stride = flat.numel() // NUM_SAMPLED
    row = num_parts(tensor) // math.prod(tensor.shape[:-1])
    while math.gcd(stride, row) != 1:
        stride -= 1
    return flat[::stride][:NUM_SAMPLED]


class Samples(Protocol):
    """Samples of several tensors, T of them, as their elements are before a step and after it."""

    @property
    def kept(self) -> Sequence[Tensor]:
        """What lies beside the tensors, on their device."""
        ...

    def remember(self) -> None:
        """A step is about to change the tensors."""
        ...

    @property
    def remembered(self) -> Tensor | None:
        """(N,): the elements of all samples, end to end, as they were before the step."""
        ...

    def recall(self, elements: Tensor) -> None:
        """Take these for what was remembered: of the same tensors, when they lay elsewhere."""
        ...

    def squares(self) -> Tensor:
        """(T,), of each tensor: the squared length of what its elements have moved since, as its
        sample tells it; NaN for an empty sample."""
        ...


S = TypeVar("S", bound=Samples)

OpenSamples = Callable[[Sequence[Tensor], Sequence[Tensor]], S]
"""Makes them of tensors and of a sample of each."""


@dataclass(frozen=True, slots=True, eq=False)
class _Plan(Generic[S]):
    """What does not change from step to step about one optimizer's tensors."""

    slots: list[int]
    tensors: list[Tensor]
    """Those that lie in one piece: a sparse one gives no sample."""
    addresses: list[int]
    """Where they lay when the samples were chosen."""
    forms: list[tuple[torch.dtype, torch.Size, tuple[int, ...]]]
    lengths: list[int]
    """Of the sample of each tensor."""
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
        """What lies beside the tensors, on their device."""
        for plan in self._plans.values():
            yield from plan.samples.kept

    def before(self, slots: Sequence[int]) -> tuple[list[int], S] | None:
        """Remember the elements of these tensors; their places, and what they are remembered by.
        None where there are none."""
        self._open = None
        if not slots:
            return None
        key = tuple(slots)
        plan = self._plans.get(key)
        if plan is not None and _has_moved(plan):
            self._plans, plan = self._no_plans(), None  # others would keep the memory that was left
        if plan is None:
            plan = self._add_plan(key)
        plan.samples.remember()
        self._open = plan
        return plan.slots, plan.samples

    def after(self) -> tuple[list[int], Tensor] | None:
        """The remembered tensors' places and the squared length of each one's update, (T,).

        None where there is nothing to compare: nothing was remembered, or a tensor has another
        form since. NaN for a tensor that gives no sample.
        """
        plan, self._open = self._open, None
        if plan is not None and _has_moved(plan):
            plan = self._follow(plan)
        return None if plan is None else (plan.slots, plan.samples.squares())

    def _follow(self, former: _Plan[S]) -> _Plan[S] | None:
        """To where a step has put the tensors, as one that assigns to `p.data` does."""
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
        """Empty where a program has put the tensor's memory on another device."""
        if tensor.device == self._device:
            return sample(tensor)
        return torch.empty(0, dtype=tensor.dtype, device=self._device)


def shares_of(tensors: Sequence[Tensor], samples: Sequence[Tensor]) -> list[float]:
    """Numbers of each tensor for each one of its sample; NaN where that is empty."""
    return [
        num_parts(one) / held.numel() if held.numel() else math.nan
        for one, held in zip(tensors, samples, strict=True)
    ]


def _bytes_of(tensor: Tensor) -> int:
    """What it takes to sample it, about."""
    num = num_parts(tensor)
    return _TENSOR_BYTES + _NUMBER_BYTES * (num if num <= ALL_UP_TO else NUM_SAMPLED)


def joined(samples: Sequence[Tensor]) -> Tensor:
    """In one, owned. Torch joins FP8 with no other type."""
    together = torch.cat([one.float() if one.dtype.itemsize == 1 else one for one in samples])
    return together if together.dtype.itemsize >= 4 else together.float()


def _has_moved(plan: _Plan[S]) -> bool:
    """Whether one of its tensors lies elsewhere in memory than its sample."""
    return plan.addresses != [one.data_ptr() for one in plan.tensors]
