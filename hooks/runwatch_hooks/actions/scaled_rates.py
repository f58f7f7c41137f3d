"""Replaces the learning rates in an optimizer's groups for one step, and puts the old ones back.

They are put back as the same object, or as the same bits in the same tensor. If other code has set
another rate meanwhile, that one stays: after a step that raised, a schedule may have moved.

If the optimizer changed the rate in its own step, there are two cases. Either it changed the scaled
rate, and the same change must be made to the schedule's. Or it contains a schedule and wrote an
unscaled rate. They cannot be told apart with certainty, so the rate it left is compared with both,
and the nearer one decides: a single step changes rates only a little.
"""

import math
from collections.abc import Sequence
from numbers import Real
from typing import cast

import torch
from torch import Tensor

Group = dict[str, object]


class ScaledRates:
    """The rates of one optimizer, during one step."""

    def __init__(self) -> None:
        self._scale = 1.0
        self._numbers: list[tuple[Group, float, float]] = []
        """(group, its rate, the scaled rate)"""
        self._tensors: list[tuple[Tensor, Tensor, int]] = []
        """(the rate's tensor, its old value, torch's count of writes to it after scaling)"""

    def put_in(self, groups: Sequence[Group], scale: float) -> None:
        """Scale the rates. Rates that are neither numbers nor tensors stay as they are."""
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
                elif isinstance(rate, Real):  # a float, an int, or one of numpy's
                    before = cast(float, rate)
                    lowered = before * scale
                    self._numbers.append((group, before, lowered))  # first: Ctrl-C may come between
                    group["lr"] = lowered

    def holds(self, group: Group) -> bool:
        """Whether a group's rate is already scaled."""
        rate = group.get("lr")
        return self._before(group, rate) is not rate

    def put_back(self, *, has_ended: bool = False) -> None:
        """Put the old rates back. `has_ended`: the step did not raise, so that another rate found
        now was set by the optimizer itself."""
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
            elif has_ended and isinstance(found, Real):
                group["lr"] = _unscaled(cast(float, found), rate, lowered)

    def put_into(self, saved: Sequence[Group], groups: Sequence[Group]) -> None:
        """Put the old rates into an optimizer's `state_dict` groups, which hold the scaled ones."""
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
    """The rate that the step would have left if it had begun with the schedule's."""
    if not (found > 0 and rate > 0 and lowered > 0):
        return found
    is_of_the_lowered = abs(math.log(found / lowered)) <= abs(math.log(found / rate))
    return rate * (found / lowered) if is_of_the_lowered else found


def _unscaled_tensor(found: Tensor, rate: Tensor, lowered: Tensor) -> Tensor:
    """Like `_unscaled`, computed on the rate's device, without a sync."""
    is_of_the_lowered = (found / lowered).log().abs() <= (found / rate).log().abs()
    return torch.where(is_of_the_lowered, rate * (found / lowered), found)
