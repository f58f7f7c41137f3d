"""What stands in an optimizer's groups while it steps by a scaled rate, and what stood there.

What was there is put back as the same object, or the same bits in the same tensor. Where somebody
has set another rate meanwhile, theirs stays: after a step that raised a schedule may have moved.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

Group = dict[str, object]


class ScaledRates:
    """Those of one optimizer, for the length of a step."""

    def __init__(self) -> None:
        self._numbers: list[tuple[Group, object, float]] = []
        """A group, its rate, and the scaled one."""
        self._tensors: list[tuple[Tensor, Tensor, int]] = []
        """A rate, its value before, and torch's count of writes to it once it was scaled."""

    def put_in(self, groups: Sequence[Group], scale: float) -> None:
        """Rates that are neither numbers nor tensors stay as they are."""
        seen: set[int] = set()
        with torch.no_grad():
            for group in groups:
                rate = group.get("lr")
                if isinstance(rate, Tensor):
                    if id(rate) not in seen:  # groups made from one default share its tensor
                        seen.add(id(rate))
                        version = rate._version + 1  # pyright: ignore[reportPrivateUsage]
                        self._tensors.append((rate, rate.detach().clone(), version))
                        rate.mul_(scale)
                elif isinstance(rate, (int, float)):
                    lowered = rate * scale
                    group["lr"] = lowered
                    self._numbers.append((group, rate, lowered))

    def holds(self, group: Group) -> bool:
        """Whether what stands in a group is a scaled rate already."""
        rate = group.get("lr")
        return self._before(group, rate) is not rate

    def put_back(self) -> None:
        with torch.no_grad():
            for tensor, before, version in self._tensors:
                if _is_as_written(tensor, version):
                    tensor.copy_(before)
        for group, rate, lowered in self._numbers:
            if group.get("lr") is lowered:
                group["lr"] = rate

    def put_into(self, saved: Sequence[Group], groups: Sequence[Group]) -> None:
        """Into what an optimizer returned as its state, made of these groups as they are now."""
        for copied, group in zip(saved, groups, strict=True):
            copied["lr"] = self._before(group, copied.get("lr"))

    def _before(self, group: Group, now: object) -> object:
        for tensor, before, version in self._tensors:
            if now is tensor and _is_as_written(tensor, version):
                return before
        for scaled, rate, lowered in self._numbers:
            if scaled is group and now is lowered:
                return rate
        return now


def _is_as_written(tensor: Tensor, version: int) -> bool:
    return tensor._version == version  # pyright: ignore[reportPrivateUsage]
