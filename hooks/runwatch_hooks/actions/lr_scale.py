"""A multiplier on the learning rate that every scheduler survives, and that survives them.

To write `group["lr"] *= 0.5` once would last under recursive schedulers and be wiped out by the
next step of closed-form ones (LambdaLR, OneCycle). Here the schedule's value stays in the group;
the scaled one stands there only while the optimizer steps. What was there is put back as the
same object, or the same bits in the same tensor: no division, so no drift.

Checkpoints and `get_last_lr()` show the schedule's value. AdamW's decay is lr x weight_decay, so
it shrinks as well.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from runwatch_hooks.actions.errors import LrScaleError
from runwatch_hooks.faults import Faults
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.wrapping.graph_capture import is_capturing
from runwatch_hooks.wrapping.nested_steps import NestedSteps
from runwatch_hooks.wrapping.step_hooks import hear_after_steps, hear_before_steps
from runwatch_hooks.wrapping.wraps import Arguments, Keywords

log = OwnLog(__name__)

_AVERAGING_KEYS: Final = frozenset({"weight_sum", "d", "d_coef"})
"""Groups of schedule-free, Prodigy and D-Adaptation: they use the rate inside their averages."""

Group = dict[str, object]


@dataclass(slots=True)
class _Scaled:
    """What stands in the groups of an optimizer while it steps, and what stood there before."""

    numbers: list[tuple[Group, object, float]] = field(
        default_factory=list[tuple[Group, object, float]]
    )
    tensors: list[tuple[Tensor, Tensor, int]] = field(
        default_factory=list[tuple[Tensor, Tensor, int]]
    )
    """The rate, its value before, and torch's count of writes to it once it was scaled."""


class LrScale:
    """Of the given optimizers, and of every later one that steps a parameter of the modules."""

    def __init__(
        self,
        optimizers: Sequence[Optimizer] = (),
        modules: Mapping[str, nn.Module] | None = None,
        *,
        on_new: Callable[[Optimizer], None] = lambda optimizer: None,
        faults: Faults | None = None,
    ) -> None:
        """`on_new` is told of each later optimizer, before its first step that we see."""
        self._faults = faults or Faults()
        self._scale = 1.0
        self._modules = tuple((modules or {}).values())
        self._ours: WeakKeyDictionary[Optimizer, bool] = WeakKeyDictionary()
        self._scaled: WeakKeyDictionary[Optimizer, _Scaled] = WeakKeyDictionary()
        self._nesting = NestedSteps()
        self._captured: WeakKeyDictionary[Optimizer, float] = WeakKeyDictionary()
        """The scale by which a step was captured into a CUDA graph."""
        self._notices: list[str] = []
        self._on_new = on_new
        for optimizer in optimizers:
            self._ours[optimizer] = True
        self._handles = (
            hear_before_steps(self._hear_before),
            hear_after_steps(self._hear_after),
        )

    @property
    def scale(self) -> float:
        """What is in force."""
        return self._scale

    def set(self, scale: float) -> None:
        """From the next step on. Raises LrScaleError where an optimizer does not allow it."""
        self.check(scale)
        self.settle()
        self._scale = scale
        for optimizer in list(self._captured.keys()):
            self._tell_captured(optimizer)

    def check(self, scale: float) -> None:
        """Whether `set` would do it. Raises LrScaleError."""
        if not (math.isfinite(scale) and scale > 0):
            raise LrScaleError(f"scale: found {scale}, wanted a finite number above 0")
        if scale != 1.0:
            for optimizer, is_ours in self._ours.items():
                if is_ours:
                    _check_scalable(optimizer)

    def take_notices(self) -> list[str]:
        """What the scale does not reach, since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def settle(self) -> None:
        """Puts the schedule's values back that a step which raised has left scaled."""
        for optimizer in list(self._scaled.keys()):
            self._put_back(optimizer)

    def close(self) -> None:
        """No optimizer is scaled any more."""
        self.settle()
        for handle in self._handles:
            handle.remove()

    def _hear_before(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("lr scale"):
            try:
                self._before_step(optimizer)
            except Exception:
                self._put_back(optimizer)  # the step goes by the schedule's rate, not by half of it
                raise

    def _hear_after(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("lr scale"):
            self._after_step(optimizer)

    def _before_step(self, optimizer: Optimizer) -> None:
        if not self._is_ours(optimizer):
            return
        if is_capturing():
            self._captured[optimizer] = self._scale
        if (self._scale != 1.0 or self._scaled) and self._nesting.enter(optimizer):
            self._put_back(optimizer)  # after a step that raised
            if self._scale != 1.0:
                self._put_in(optimizer)

    def _after_step(self, optimizer: Optimizer) -> None:
        if self._scaled and self._nesting.leave(optimizer):
            self._put_back(optimizer)

    def _put_in(self, optimizer: Optimizer) -> None:
        scaled = self._scaled[optimizer] = _Scaled()
        seen: set[int] = set()
        with torch.no_grad():
            for group in cast("list[Group]", optimizer.param_groups):
                rate = group.get("lr")
                if isinstance(rate, Tensor):
                    if id(rate) not in seen:  # groups made from one default share its tensor
                        seen.add(id(rate))
                        version = rate._version + 1  # pyright: ignore[reportPrivateUsage]
                        scaled.tensors.append((rate, rate.detach().clone(), version))
                        rate.mul_(self._scale)
                elif isinstance(rate, (int, float)):
                    lowered = rate * self._scale
                    group["lr"] = lowered
                    scaled.numbers.append((group, rate, lowered))

    def _put_back(self, optimizer: Optimizer) -> None:
        scaled = self._scaled.pop(optimizer, None)
        if scaled is None:
            return
        # After a step that raised, a schedule may have moved meanwhile: it has the last word.
        with torch.no_grad():
            for tensor, before, version in scaled.tensors:
                if tensor._version == version:  # pyright: ignore[reportPrivateUsage]
                    tensor.copy_(before)
        for group, rate, lowered in scaled.numbers:
            if group.get("lr") is lowered:
                group["lr"] = rate

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
    for index, group in enumerate(cast("list[Group]", optimizer.param_groups)):
        rate = group.get("lr")
        if not isinstance(rate, (int, float, Tensor)):
            raise LrScaleError(f"{name}, group {index}: found lr {rate!r}, wanted a number")
        averaging = sorted(_AVERAGING_KEYS & group.keys())
        if averaging:
            raise LrScaleError(
                f"{name}, group {index}: uses its learning rate inside its averages "
                f"({averaging[0]!r}), so that scaling it would change what they mean"
            )
