"""How far a step moved each tensor, by a sample of its elements before and after.

Updates are light-tailed (an optimizer moves most elements about as far), so 1024 elements give
their root mean square to 1 % (median; 3.5 % at p95, notes of the design), for every optimizer,
weight decay included, at 4 KiB a tensor instead of a copy of the model. The same sample of a
*gradient* would miss what matters: an embedding's rows are mostly zero, a NaN is often alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from runwatch_hooks.measuring.dense import dense_view
from runwatch_hooks.measuring.host_memory import to_device
from runwatch_hooks.measuring.host_samples import HostSamples
from runwatch_hooks.measuring.one_pass import OnePass

_TORCH: Final[Any] = torch  # whose foreach operations have no public names

NUM_SAMPLED: Final = 1024
ALL_UP_TO: Final = 4096
"""Elements: a tensor no larger is taken whole, which costs less than to choose."""


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
    row = tensor.shape[-1] if tensor.dim() else 1
    while math.gcd(stride, row) != 1:
        stride -= 1
    return flat[::stride][:NUM_SAMPLED]


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """What does not change from step to step about one optimizer's tensors."""

    slots: list[int]
    tensors: list[Tensor]
    """Those that lie in one piece: a sparse one gives no sample."""
    addresses: list[int]
    """Where they lay when the samples were chosen."""
    samples: list[Tensor]
    on_host: HostSamples | None
    """None of other types, and where the memory is not the host's."""
    lengths: list[int]
    """Elements in each sample."""
    lengths_there: Tensor
    """(T,) int64: the same, where the tensors lie."""
    ratios: Tensor
    """(T,) float32: elements of each tensor to one of its sample; NaN where there is none."""


class SampledUpdates:
    """Compares fixed elements of tensors, all on one device, before and after a step."""

    def __init__(self, tensors: Sequence[Tensor], one_pass: OnePass | None = None) -> None:
        """`one_pass` reads those in the host's memory, where it was compiled."""
        self._tensors = tensors
        self._one_pass = one_pass
        self._plans: dict[tuple[int, ...], _Plan] = {}
        self._open: tuple[_Plan, Tensor] | None = None

    @property
    def remembered(self) -> tuple[Tensor, ...]:
        """What is kept from before a step until after it."""
        return () if self._open is None else (self._open[1],)

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
        before = joined(plan.samples) if plan.on_host is None else plan.on_host.remember()
        self._open = plan, before

    def broken_before(self) -> tuple[list[int], Tensor] | None:
        """The remembered tensors' places, and (T,) NaN where a remembered element is not finite
        and -1 elsewhere."""
        if self._open is None:
            return None
        plan, before = self._open
        # Times zero, all that is finite vanishes.
        return plan.slots, _sums_within(before * 0.0, plan).float() - 1.0

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
        if plan.on_host is not None:
            return plan.slots, plan.on_host.squares()
        squares = joined(plan.samples).sub_(before).square_()
        return plan.slots, _sums_within(squares, plan).mul_(plan.ratios)

    def _plan(self, slots: Sequence[int]) -> _Plan:
        tensors = [self._tensors[slot] for slot in slots]
        samples = [sample(one) for one in tensors]
        lengths = [one.numel() for one in samples]
        ratios = [
            one.numel() / length if length else math.nan
            for one, length in zip(tensors, lengths, strict=True)
        ]
        device = tensors[0].device
        in_one_piece = [one for one in tensors if one.layout is torch.strided]
        return _Plan(
            slots=list(slots),
            tensors=in_one_piece,
            addresses=[one.data_ptr() for one in in_one_piece],
            samples=samples,
            on_host=HostSamples(tensors, samples, self._one_pass)
            if all(map(_is_plain, samples))
            else None,
            lengths=lengths,
            lengths_there=to_device(torch.tensor(lengths, dtype=torch.int64, device="cpu"), device),
            ratios=to_device(torch.tensor(ratios, dtype=torch.float32, device="cpu"), device),
        )


def _sums_within(together: Tensor, plan: _Plan) -> Tensor:
    """(T,): over the elements of each sample, none of which is negative."""
    if together.device.type == "mps":  # which has no such operation
        pieces = together.split_with_sizes(plan.lengths)
        return torch.stack(_TORCH._foreach_norm(pieces, 1.0))
    return torch.segment_reduce(together, "sum", lengths=plan.lengths_there, unsafe=True)


def joined(samples: list[Tensor]) -> Tensor:
    """In one, owned."""
    together = torch.cat(samples)
    return together if together.dtype.itemsize >= 4 else together.float()


def _has_moved(plan: _Plan) -> bool:
    """Whether one of its tensors lies elsewhere in memory than its sample."""
    return plan.addresses != [one.data_ptr() for one in plan.tensors]


def _is_plain(sample: Tensor) -> bool:
    """Whether it can be read as it lies, and torch counts its changes."""
    is_on_host = sample.device.type == "cpu" and sample.dtype == torch.float32
    return is_on_host and not sample.is_inference()
