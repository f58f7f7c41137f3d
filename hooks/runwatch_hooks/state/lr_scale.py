"""A multiplier on the learning rate that works with every scheduler.

Writing `group["lr"] *= 0.5` once would last under recursive schedulers, but be overwritten by the
next step of closed-form ones (LambdaLR, OneCycle). Here the schedule's value stays in the group,
and is replaced by the scaled one only while the optimizer steps. The old value is
put back rather than divided, so nothing drifts.

Checkpoints and `get_last_lr()` show the schedule's value. AdamW's decay is lr x weight_decay, so it
shrinks too.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer, Rprop
from torch.utils.hooks import RemovableHandle

from runwatch_hooks.faults import Faults
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.state.outcomes import LrScaleError
from runwatch_hooks.step.layers import steps_as_torchs_own
from runwatch_hooks.step.optimizer_steps import (
    CloseHandle,
    NestedSteps,
    StepHandle,
    hear_before_steps,
    hear_close_to_steps,
    is_under_way,
    is_within_another_step_of,
)
from runwatch_hooks.step.torch_hooks import Uncopied, is_capturing
from runwatch_hooks.wraps import Arguments, Keywords

Group = dict[str, object]


class ScaledRates:
    """The rates of one optimizer, during one step.

    Replaced rates are put back as the same object, or as the same bits in the same tensor. If other
    code has set another rate meanwhile, that one stays: after a step that raised, a schedule may
    have moved.

    If the optimizer changed the rate in its own step, there are two cases. Either it changed the
    scaled rate, and the same change must be made to the schedule's. Or it contains a schedule and
    wrote an unscaled rate. They cannot be told apart with certainty, so the rate it left is
    compared with both, and the nearer one decides: a single step changes rates only a little.
    """

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


log = OwnLog(__name__)

_AVERAGING_KEYS: Final = frozenset({"weight_sum", "d", "d_coef"})
"""Group keys of schedule-free optimizers, Prodigy and D-Adaptation, which use the rate inside their
averages. Not checked for torch's own optimizers: none does so, but its Adafactor has a clipping
threshold called `d`."""


class LrScale:
    """The multiplier for the given optimizers, and any later one that steps the modules'
    parameters.
    """

    def __init__(
        self,
        optimizers: Sequence[Optimizer] = (),
        modules: Mapping[str, nn.Module] | None = None,
        *,
        on_new: Callable[[Optimizer], None] = lambda optimizer: None,
        faults: Faults | None = None,
    ) -> None:
        """`on_new` is called with each later optimizer, before the first step of it that is
        seen."""
        self._faults = faults or Faults()
        self._scale = 1.0
        self._modules = tuple((modules or {}).values())
        self._ours: WeakKeyDictionary[Optimizer, bool] = WeakKeyDictionary()
        self._scaled: WeakKeyDictionary[Optimizer, ScaledRates] = WeakKeyDictionary()
        self._nesting = NestedSteps()
        self._captured: WeakKeyDictionary[Optimizer, float] = WeakKeyDictionary()
        """Optimizer -> the scale at which its step was captured into a CUDA graph."""
        self._notices: list[str] = []
        self._on_new = on_new
        for optimizer in optimizers:
            self._ours[optimizer] = True
        self._handles: tuple[StepHandle | CloseHandle, ...] = ()
        self._savings: WeakKeyDictionary[Optimizer, RemovableHandle] = WeakKeyDictionary()
        """Handles of the `state_dict` hooks on optimizers that were scaled."""
        self._pid = os.getpid()

    def install(self) -> None:
        """Scale learning rates during optimizer steps from now on."""
        self._handles = (
            hear_before_steps(self._hear_first),
            hear_close_to_steps(self._hear_before, self._hear_after, list(self._ours)),
        )

    @property
    def scale(self) -> float:
        """The multiplier in force."""
        return self._scale

    def set(self, scale: float) -> None:
        """Set the multiplier, from the next step on. Raises LrScaleError like `check`."""
        self.check(scale)
        self.settle()
        self._scale = scale
        for optimizer in list(self._captured.keys()):
            self._tell_captured(optimizer)

    def check(self, scale: float) -> None:
        """Raises LrScaleError if the scale is not positive and finite, or cannot be applied to one
        of the optimizers."""
        if not (math.isfinite(scale) and scale > 0):
            raise LrScaleError(f"scale: found {scale}, wanted a finite number above 0")
        if scale != 1.0:
            for optimizer, is_ours in self._ours.items():
                if is_ours:
                    _check_scalable(optimizer)

    def take_notices(self) -> list[str]:
        """Messages about steps that the scale does not reach, since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def settle(self) -> None:
        """Put back the schedule's values where a step that raised has left scaled ones."""
        for optimizer in list(self._scaled.keys()):
            if not is_under_way(optimizer):  # a signal handler may call this during a step
                self._put_back(optimizer)

    def close(self) -> None:
        """Stop scaling, and put all values back."""
        for optimizer in list(self._scaled.keys()):
            self._put_back(optimizer)
        for handle in (*self._handles, *self._savings.values()):
            handle.remove()

    def _hear_first(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        """Called before the program's own hooks, which must see the schedule's rate."""
        with self._faults.guard("lr scale"):
            if optimizer in self._scaled and not is_within_another_step_of(optimizer):
                self._put_back(optimizer)  # after a step that raised

    def _hear_saving(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
        """Called when a `state_dict` is made. During a step, or after one that raised, the group
        holds the scaled rate, but the saved state must hold the schedule's."""
        with self._faults.guard("lr scale"):
            if (scaled := self._scaled.get(optimizer)) is not None:
                scaled.put_into(state_dict["param_groups"], optimizer.param_groups)

    def _hear_before(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("lr scale"):
            try:
                self._before_step(optimizer)
            except Exception:
                self._put_back(optimizer)  # all groups at the schedule's rate, rather than some
                raise

    def _hear_after(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("lr scale"):
            self._after_step(optimizer)

    def _before_step(self, optimizer: Optimizer) -> None:
        # A forked child trains by itself, with the rate that it sees.
        if os.getpid() != self._pid or not self._is_ours(optimizer):
            return
        if is_capturing():
            self._captured[optimizer] = self._scale
        if self._scale != 1.0 and self._nesting.enter(optimizer):
            self._put_in(optimizer)

    def _after_step(self, optimizer: Optimizer) -> None:
        if self._scaled and self._nesting.leave(optimizer):
            self._put_back(optimizer, has_ended=True)

    def _put_in(self, optimizer: Optimizer) -> None:
        in_force = list(self._scaled.values())
        groups = cast("list[Group]", optimizer.param_groups)
        # An optimizer that delegates its step shares its groups with the inner one.
        plain = [one for one in groups if not any(scaled.holds(one) for scaled in in_force)]
        scaled = self._scaled[optimizer] = ScaledRates()
        scaled.put_in(plain, self._scale)
        if optimizer not in self._savings:
            hear_saving = optimizer.register_state_dict_post_hook
            self._savings[optimizer] = hear_saving(Uncopied(self._hear_saving), prepend=True)

    def _put_back(self, optimizer: Optimizer, *, has_ended: bool = False) -> None:
        scaled = self._scaled.get(optimizer)
        if scaled is not None:
            scaled.put_back(has_ended=has_ended)
            # Last: if an interrupt comes before, `settle` does it again.
            del self._scaled[optimizer]

    def _tell_captured(self, optimizer: Optimizer) -> None:
        captured = self._captured[optimizer]
        if captured != self._scale:
            notice = (
                f"lr_scale {self._scale:g} does not reach a step of {type(optimizer).__name__} "
                f"that a CUDA graph holds: replays go by {captured:g} until it is captured anew"
            )
            log.warning(notice)
            self._notices.append(notice)

    def _is_ours(self, optimizer: Optimizer) -> bool:
        known = self._ours.get(optimizer)
        if known is None:
            watched = {id(p) for module in self._modules for p in module.parameters()}
            known = any(
                id(parameter) in watched
                for group in cast("list[dict[str, list[Tensor]]]", optimizer.param_groups)
                for parameter in group["params"]
            )
            self._ours[optimizer] = known
            if known:
                self._on_new(optimizer)
        return known


def _check_scalable(optimizer: Optimizer) -> None:
    name = type(optimizer).__name__
    if isinstance(optimizer, Rprop):
        raise LrScaleError(
            f"{name}: its learning rate is the size of its first step alone, and the sizes that "
            "follow come from the gradients' signs: scaling it would change nothing"
        )
    keys = frozenset[str]() if steps_as_torchs_own(optimizer) else _AVERAGING_KEYS
    for index, group in enumerate(cast("list[Group]", optimizer.param_groups)):
        rate = group.get("lr")
        if not isinstance(rate, (Real, Tensor)):
            raise LrScaleError(f"{name}, group {index}: found lr {rate!r}, wanted a number")
        averaging = sorted(keys & group.keys())
        if averaging:
            raise LrScaleError(
                f"{name}, group {index}: uses its learning rate inside its averages "
                f"({averaging[0]!r}), so that scaling it would change what they mean"
            )
