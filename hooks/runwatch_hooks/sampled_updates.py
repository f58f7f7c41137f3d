"""How far a step moved each tensor, by a sample of its elements taken before and after.

Updates are light-tailed (an optimizer moves most elements about as far), so 1024 elements give
their root mean square to 1 % (median; 3.5 % at p95, notes of the design), for every optimizer,
weight decay included, at 4 KiB a tensor instead of a copy of the model. The same sample of a
*gradient* would miss what matters: an embedding's rows are mostly zero, a NaN is often alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from runwatch_hooks.dense import dense_view

NUM_SAMPLED: Final = 1024
ALL_UP_TO: Final = 4096
"""Elements: a tensor no larger is taken whole, which costs less than to choose."""


def sample(tensor: Tensor) -> Tensor:
    """A view of fixed elements, evenly spread in memory; empty where no view can be.

    The stride has no factor in common with the length of a row, or the sample of a matrix
    would come from a few of its columns.
    """
    flat = dense_view(tensor)
    if flat is None:
        return tensor.new_empty(0)
    if flat.numel() <= ALL_UP_TO:
        return flat
    stride = flat.numel() // NUM_SAMPLED
    row = tensor.shape[-1] if tensor.dim() else 1
    while math.gcd(stride, row) != 1:
        stride -= 1
    return flat[::stride][:NUM_SAMPLED]


class _Joined:
    """Samples on the host, which numpy joins at two thirds of torch's cost, and compares for less
    than `segment_reduce`: 93 against 118 microseconds for all of it, of 100 small tensors.

    In two buffers by turns, before and after a step: new memory would cost as much again.
    """

    def __init__(self, samples: Sequence[Tensor]) -> None:
        self._arrays = [one.numpy() for one in samples]
        lengths = np.array([one.numel() for one in samples], np.intp)
        self._lengths = lengths[lengths > 0]
        self._starts = (np.cumsum(lengths) - lengths)[lengths > 0]
        self._is_held = lengths > 0
        num_elements = sum(one.numel() for one in samples)
        self._buffers = (np.empty(num_elements, np.float32), np.empty(num_elements, np.float32))
        self._turn = 0

    def join(self) -> Tensor:
        self._turn = 1 - self._turn
        return torch.from_numpy(np.concatenate(self._arrays, out=self._buffers[self._turn]))

    def mean_squares(self, before: Tensor) -> Tensor:
        """(T,) of what lies between what was joined before and now; NaN of an empty sample."""
        means = np.full(len(self._is_held), np.nan, np.float32)
        changes = before.numpy()
        with np.errstate(all="ignore"):
            np.subtract(self.join().numpy(), changes, out=changes)
            np.multiply(changes, changes, out=changes)
            if self._starts.size:
                sums = np.add.reduceat(changes, self._starts)
                means[self._is_held] = sums / self._lengths
        return torch.from_numpy(means)


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """What does not change from step to step about one optimizer's tensors."""

    slots: list[int]
    tensors: list[Tensor]
    addresses: list[int]
    """Where the tensors lay when the samples were chosen."""
    samples: list[Tensor]
    joined: _Joined | None
    """None where numpy has no such type, or the memory is not the host's."""
    lengths: Tensor
    """(T,) int64: elements in each sample."""
    sizes: Tensor
    """(T,) float32: elements in each tensor."""


class SampledUpdates:
    """Compares fixed elements of tensors, all on one device, before and after a step."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors
        self._plans: dict[tuple[int, ...], _Plan] = {}
        self._open: tuple[_Plan, Tensor] | None = None

    def before(self, slots: Sequence[int]) -> None:
        """Remember the elements of these tensors."""
        self._open = None
        if not slots:
            return
        key = tuple(slots)
        plan = self._plans.get(key)
        if plan is not None and _has_moved(plan):
            self._plans, plan = {}, None  # others would keep the memory that was left
        if plan is None:
            plan = self._plans[key] = self._plan(key)
        self._open = plan, self._gather(plan)

    def broken_before(self) -> tuple[list[int], Tensor] | None:
        """The remembered tensors' places, and (T,) NaN where a remembered element is not finite
        and -1 elsewhere."""
        if self._open is None:
            return None
        plan, before = self._open
        # Times zero, all that is finite vanishes.
        marks = torch.segment_reduce(
            before * 0.0, "sum", lengths=plan.lengths, initial=-1.0, unsafe=True
        )
        return plan.slots, marks.float()

    def after(self) -> tuple[list[int], Tensor] | None:
        """The remembered tensors' places and the squared length of each one's update, (T,).

        None where there is nothing to compare: nothing was remembered, or a tensor was put
        elsewhere in between. NaN for a tensor that gives no sample.
        """
        if self._open is None:
            return None
        (plan, before), self._open = self._open, None
        if _has_moved(plan):
            return None
        if plan.joined is not None:
            return plan.slots, plan.joined.mean_squares(before).mul_(plan.sizes)
        squares = self._gather(plan).sub_(before).square_()
        means = torch.segment_reduce(squares, "mean", lengths=plan.lengths, unsafe=True)
        return plan.slots, means.mul_(plan.sizes)

    def _plan(self, slots: Sequence[int]) -> _Plan:
        device = self._tensors[slots[0]].device
        tensors = [self._tensors[slot] for slot in slots]
        samples = [sample(one) for one in tensors]
        lengths = [one.numel() for one in samples]
        sizes = [float(one.numel()) for one in tensors]
        return _Plan(
            slots=list(slots),
            tensors=tensors,
            addresses=[one.data_ptr() for one in tensors],
            samples=samples,
            joined=_Joined(samples) if all(map(_is_plain, samples)) else None,
            lengths=torch.tensor(lengths, dtype=torch.int64, device="cpu").to(device),
            sizes=torch.tensor(sizes, dtype=torch.float32, device="cpu").to(device),
        )

    def _gather(self, plan: _Plan) -> Tensor:
        """The samples in one, owned until the next step but one."""
        if plan.joined is not None:
            return plan.joined.join()
        together = torch.cat(plan.samples)
        return together if together.dtype.itemsize >= 4 else together.float()


def _has_moved(plan: _Plan) -> bool:
    """Whether one of its tensors lies elsewhere in memory than its sample."""
    return plan.addresses != [one.data_ptr() for one in plan.tensors]


def _is_plain(sample: Tensor) -> bool:
    return sample.device.type == "cpu" and sample.dtype == torch.float32
