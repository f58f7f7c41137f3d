"""Makes an optimizer's step by gradients that are not finite a step that changes nothing.

Telling and acting come some steps late, and by then a NaN is in every weight and moment. Here the
step itself is stopped, and nobody waits for a device:

- A fused optimizer (Adam, AdamW, SGD, Adagrad) asks `found_inf` on the device, as it does for a
  gradient scaler: parameters, moments and the count of steps stay as they are.
- Of tensors in the host's memory the answer is known at once. Any optimizer passes over parameters
  without a gradient, so the gradients are out of sight while it steps, and then back.

What else an accelerator could offer changes the moments or takes a second copy of them, so that
an optimizer of another kind is refused there. So are sharded parameters: a rank sees its own part
only, and to decide alike would be a collective at every step. Replicas (DDP) hold the same
gradients after their reduction, and so decide alike.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from runwatch_hooks.actions.finite import all_finite
from runwatch_hooks.faults import Faults
from runwatch_hooks.gradient_sums import GradientReader
from runwatch_hooks.guard.objections import asks_the_device, objection_to, parameters_of
from runwatch_hooks.one_pass import load_one_pass
from runwatch_hooks.wraps import Arguments, Keywords

Number = float | Tensor

_STEP: Final = "profile_hook_step.<locals>.wrapper"
"""What torch puts around `step`, and calls the hooks from."""
_CLOSURE: Final = "a step that evaluates a closure (LBFGS) is not guarded"


class Guard:
    """Over the given optimizers, and every later one that steps a parameter of the modules."""

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        optimizers: Sequence[Optimizer],
        faults: Faults,
    ) -> None:
        self._modules = tuple(modules.values())
        self._faults = faults
        self._objections: WeakKeyDictionary[Optimizer, str | None] = WeakKeyDictionary()
        """Why it is not guarded: empty where it is, None where it is not the run's."""
        for optimizer in optimizers:
            self._objections[optimizer] = objection_to(optimizer)
        self._open: WeakKeyDictionary[Optimizer, FrameType | None] = WeakKeyDictionary()
        """The frame of the step that is under way; of one that raised it is off the stack."""
        self._hidden: WeakKeyDictionary[Optimizer, list[tuple[Tensor, Tensor]]]
        self._hidden = WeakKeyDictionary()
        self._flagged: WeakKeyDictionary[Optimizer, bool] = WeakKeyDictionary()
        self._reader = GradientReader(load_one_pass())
        self._num_known = 0.0
        self._num_flagged: dict[torch.device, Tensor] = {}
        self._notices: list[str] = []
        self._handles: list[RemovableHandle] = []
        self._pid = os.getpid()

    def install(self) -> None:
        """After whoever wants to read the gradients first."""
        self._handles = [
            register_optimizer_step_pre_hook(_untraced(self._before_step)),
            register_optimizer_step_post_hook(_untraced(self._after_step)),
        ]

    def remove(self) -> None:
        """Nothing is guarded any more."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for optimizer in list(self._hidden.keys()):
            self._put_back(optimizer)
        for optimizer in list(self._flagged.keys()):
            self._take_flag(optimizer)

    def take(self) -> Number:
        """How many optimizer steps were made to change nothing since the last call."""
        known, self._num_known = self._num_known, 0.0
        flagged, self._num_flagged = self._num_flagged, {}
        total: Tensor | None = None
        for flag in flagged.values():
            total = flag if total is None else total + flag.to(total.device, non_blocking=True)
        return known if total is None else total + known

    def take_notices(self) -> list[str]:
        """What is not guarded, to be told once."""
        notices, self._notices = self._notices, []
        return notices

    def _before_step(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        if os.getpid() != self._pid:
            return
        with self._faults.guard("guard", self.remove):
            under_way = self._open.get(optimizer)
            if under_way is not None and _is_on_the_stack(under_way):
                return  # a subclass whose `step` calls that of its parent
            self._put_back(optimizer)  # after a step that raised
            self._take_flag(optimizer)
            self._open[optimizer] = _frame_of_step()
            if self._objection_to(optimizer, args, kwargs) != "":
                return
            if getattr(optimizer, "found_inf", None) is not None:
                return  # a gradient scaler's step: it looks after it by itself
            with torch.no_grad():
                self._guard(optimizer)

    def _after_step(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        if os.getpid() != self._pid:
            return
        with self._faults.guard("guard", self.remove):
            if self._open.get(optimizer) is _frame_of_step():
                self._open.pop(optimizer, None)
                self._put_back(optimizer)
                self._take_flag(optimizer)

    def _guard(self, optimizer: Optimizer) -> None:
        with_grad = _with_gradients(optimizer)
        flags = self._flags([grad for _, grad in with_grad])
        if not flags:
            return
        if asks_the_device(optimizer):
            flag = flags[0]
            for other in flags[1:]:
                flag = torch.maximum(flag, other.to(flag.device, non_blocking=True))
            cast(Any, optimizer).found_inf = flag
            self._flagged[optimizer] = True
            self._count(flag)
        elif any(bool(flag) for flag in flags):  # all of them are in the host's memory
            self._hidden[optimizer] = with_grad
            for parameter, _ in with_grad:
                parameter.grad = None
            self._num_known += 1.0

    def _flags(self, grads: Sequence[Tensor]) -> list[Tensor]:
        """Of each device 1.0 where something is not finite, else 0.0, as a tensor on it."""
        by_device: dict[torch.device, list[Tensor]] = {}
        for grad in grads:
            values = grad._values() if grad.is_sparse else grad  # pyright: ignore[reportPrivateUsage]
            if values.numel():
                by_device.setdefault(values.device, []).append(values)
        return [1.0 - self._are_finite(ours).float() for ours in by_device.values()]

    def _are_finite(self, grads: Sequence[Tensor]) -> Tensor:
        """Of one device's."""
        if any(one.device.type != "cpu" or one.dtype != torch.float32 for one in grads):
            return all_finite(grads)
        # Exact: squares of float32 stay within float64. The compiled kernel takes half the time.
        return torch.tensor(bool(np.isfinite(self._reader.squares(grads)).all()))

    def _count(self, flag: Tensor) -> None:
        if flag.device.type == "cpu":
            self._num_known += float(flag)
        else:
            before = self._num_flagged.get(flag.device)
            self._num_flagged[flag.device] = flag if before is None else before + flag

    def _put_back(self, optimizer: Optimizer) -> None:
        for parameter, grad in self._hidden.pop(optimizer, ()):
            if parameter.grad is None:
                parameter.grad = grad

    def _take_flag(self, optimizer: Optimizer) -> None:
        if self._flagged.pop(optimizer, False):
            del cast(Any, optimizer).found_inf

    def _objection_to(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> str | None:
        if optimizer not in self._objections:
            known = {id(one) for module in self._modules for one in module.parameters()}
            is_ours = any(id(one) in known for one in parameters_of(optimizer))
            self._objections[optimizer] = objection = objection_to(optimizer) if is_ours else None
            if objection:
                self._notices.append(f"not guarded: {objection}")
        objection = self._objections[optimizer]
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if objection == "" and closure is not None:
            self._objections[optimizer] = _CLOSURE
            self._notices.append(_CLOSURE)
            return _CLOSURE
        return objection


def _with_gradients(optimizer: Optimizer) -> list[tuple[Tensor, Tensor]]:
    return [(one, one.grad) for one in parameters_of(optimizer) if one.grad is not None]


def _frame_of_step() -> FrameType | None:
    """Of the `step` from which a hook is called; None where it was compiled."""
    here: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while here is not None and not here.f_code.co_qualname.endswith(_STEP):
        here = here.f_back
    return here


def _is_on_the_stack(frame: FrameType) -> bool:
    here: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while here is not None and here is not frame:
        here = here.f_back
    return here is frame


Hook = Callable[[Optimizer, Arguments, Keywords], None]


def _untraced(hook: Hook) -> Hook:
    """Left alone by torch.compile."""
    disable = cast("Callable[[Hook], Hook]", torch.compiler.disable)
    return disable(hook)
