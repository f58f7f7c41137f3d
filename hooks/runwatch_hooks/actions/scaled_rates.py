"""What stands in an optimizer's groups while it steps by a scaled rate, and what stood there.

What was there is put back as the same object, or the same bits in the same tensor. Where somebody
has set another rate meanwhile, theirs stays: after a step that raised a schedule may have moved.

An optimizer that changes its rate in its own step does so to the scaled one, and what it did is
done to the schedule's; or it has a schedule in it, whose rate stands there as it would unscaled.
Nobody says which, so the nearer one is taken: steps change rates little by little.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Group = dict[str, object]


class ScaledRates:
    """Those of one optimizer, for the length of a step."""

    def __init__(self) -> None:
        self._scale = 1.0
        self._numbers: list[tuple[Group, float, float]] = []
        """A group, its rate, and the scaled one."""
        self._tensors: list[tuple[Tensor, Tensor, int]] = []
        """A rate, its value before, and torch's count of writes to it once it was scaled."""

    def put_in(self, groups: Sequence[Group], scale: float) -> None:
        """Rates that are neither numbers nor tensors stay as they are."""
        self._scale = scale
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

    def put_back(self, *, has_ended: bool = False) -> None:
        """`has_ended`: the step went to its end, and a rate that it left is the optimizer's own."""
        with torch.no_grad():
            for tensor, before, version in self._tensors:
                if _is_as_written(tensor, version):
                    tensor.copy_(before)
                elif has_ended:
                    tensor.copy_(_unscaled_tensor(tensor, before, before * self._scale))
        for group, rate, lowered in self._numbers:
            found = group.get("lr")
            if found is lowered:
                group["lr"] = rate
            elif has_ended and isinstance(found, float):
                group["lr"] = _unscaled(found, rate, lowered)

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


def _unscaled(found: float, rate: float, lowered: float) -> float:
    """What a step left, had it begun with the schedule's rate instead of the lowered one."""
    if not (found > 0 and rate > 0 and lowered > 0):
        return found
    is_of_the_lowered = abs(math.log(found / lowered)) <= abs(math.log(found / rate))
    return rate * (found / lowered) if is_of_the_lowered else found


def _unscaled_tensor(found: Tensor, rate: Tensor, lowered: Tensor) -> Tensor:
    """The same, where the rate lies: it is not waited for."""
    is_of_the_lowered = (found / lowered).log().abs() <= (found / rate).log().abs()
    return torch.where(is_of_the_lowered, rate * (found / lowered), found)
