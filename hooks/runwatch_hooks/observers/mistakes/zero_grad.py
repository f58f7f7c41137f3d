"""Detects a missing `zero_grad`: gradients that still contain those of the step before.

Clearing a gradient replaces the tensor or writes to it. Torch counts writes to a tensor, except
those through `grad.data`, after which the tensor is all zeros. So a gradient that is the same
tensor at every step is followed for some steps, through each accumulation. If only accumulations
wrote to it, and the first of them found non-zero values, it was not cleared.
"""

from collections.abc import Callable
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils import hooks
from torch.utils.hooks import RemovableHandle

from runwatch_hooks.faults import Faults
from runwatch_hooks.ranks.shards import is_hollow, local_of
from runwatch_hooks.statistics.readback import Readback, Ticket
from runwatch_hooks.statistics.samples import sample
from runwatch_hooks.step.gradient_marks import WeakGradient, elements_of
from runwatch_hooks.step.layers import optimizer_parameters
from runwatch_hooks.step.observer import (
    OptimizerStep,
    RunContext,
    StepEnd,
    StepNotes,
    StepObserver,
)
from runwatch_hooks.step.torch_hooks import is_capturing

Follow = Callable[[Callable[[Tensor], None]], RemovableHandle]
"""A method of torch that has no types."""
Hear = Callable[["_Witness", Tensor], None]

_unsaved = cast("Callable[[Hear], Hear]", cast(Any, hooks).unserializable_hook)
"""Marks a hook that torch leaves out of a saved tensor without a warning."""

SAME_FOR: Final = 8
"""Steps with the same tensor before it is followed. Most programs get a new one at each step."""
_FOLLOWED_FOR: Final = 4
"""Steps in which it was cleared, after which it is no longer followed."""
_AGAIN_AFTER: Final = 64
"""Steps until a tensor that was cleared is followed again."""


class ZeroGrad(StepObserver):
    """Looks at one parameter of each optimizer. One is enough: a program that clears only some
    gradients does so on purpose."""

    name = "kept gradients"

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._witnesses: WeakKeyDictionary[Optimizer, _Witness] = WeakKeyDictionary()
        self._is_kept = False
        self._has_told = False

    @classmethod
    def make(cls, run: RunContext) -> StepObserver | None:
        return cls(run.faults) if run.world.is_leader else None

    def on_gradients(self, step: OptimizerStep) -> None:
        optimizer = step.optimizer
        witness = self._witnesses.get(optimizer)
        if witness is not None and witness.parameter.grad is not None:
            self._is_kept = witness.look() or self._is_kept
            return
        found = next((one for one in optimizer_parameters(optimizer) if one.grad is not None), None)
        if found is not None:
            if witness is not None:
                witness.let_go()
            self._witnesses[optimizer] = _Witness(found, self._faults)

    def after_optimizer(self, step: OptimizerStep) -> None:
        witness = self._witnesses.get(step.optimizer)
        if witness is not None:
            witness.remember()

    def end_step(self, end: StepEnd) -> StepNotes | None:
        """1 if a step of the row used gradients that were not cleared, 0 if none does any more,
        nothing if none ever did."""
        is_kept, self._is_kept = self._is_kept, False
        self._has_told = self._has_told or is_kept
        return StepNotes({"kept_gradients": float(is_kept)}) if self._has_told else None

    def detach(self) -> None:
        for witness in self._witnesses.values():
            witness.let_go()


class HeldNumbers:
    """Whether one parameter's gradient contains anything but zeros, from a sample of its elements.
    From an accelerator the answer arrives some steps later, without a sync."""

    def __init__(self) -> None:
        self._device: torch.device | None = None
        self._asked: Ticket | None = None
        self._were_there: bool | None = None

    def look(self, grad: Tensor) -> None:
        """Sample the gradient now, unless an earlier answer has yet to arrive."""
        if self._asked is not None or is_capturing():
            return
        with torch.no_grad():
            elements = elements_of(local_of(grad))
            flag = sample(elements).any().to(torch.float32).reshape(1)
        if flag.device != self._device:
            self._device, self._ring = flag.device, Readback(1, flag.device, depth=1)
        self._asked = self._ring.send(flag)

    def were_there(self) -> bool | None:
        """The last answer; None before the first has arrived."""
        if self._asked is not None and self._asked.is_there():
            self._were_there = bool(self._asked.values()[0])
            self._asked = None
        return self._were_there


class _Witness:
    """One parameter, and what happened to its gradient since the last step."""

    def __init__(self, parameter: Tensor, faults: Faults) -> None:
        self.parameter = parameter
        self._faults = faults
        self._last: WeakGradient | None = None
        self._held = HeldNumbers()
        self._num_same = 0
        self._handles: list[RemovableHandle] = []
        self._num_accumulated = 0
        self._is_untouched = True
        self._num_cleared = 0

    def look(self) -> bool:
        """Whether the gradient is known to contain that of the step before."""
        gradient = self.parameter.grad
        is_same = self._last is not None and self._last.is_of(gradient)
        # Accumulation moves a sparse gradient to new memory, so it must be followed to know.
        may_be_same = is_same or (gradient is not None and gradient.layout is not torch.strided)
        self._num_same = self._num_same + 1 if may_be_same else 0
        if not self._handles:
            if self._num_same >= SAME_FOR:
                self._follow()
            return False
        were_there = self._held.were_there()
        is_untouched = is_same and self._is_untouched and self._num_accumulated > 0
        if is_untouched and were_there is None:
            return False
        is_kept = is_untouched and were_there is True
        self._num_cleared = 0 if is_kept else self._num_cleared + 1
        if self._num_cleared >= _FOLLOWED_FOR:
            self.let_go()
        return is_kept

    def remember(self) -> None:
        """The step has ended; follow what is written to the gradient from here on."""
        gradient = self.parameter.grad
        self._last = None if gradient is None else WeakGradient(gradient)
        self._num_accumulated, self._is_untouched = 0, True

    def let_go(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles, self._num_cleared = [], 0
        self._num_same = SAME_FOR - _AGAIN_AFTER

    def _follow(self) -> None:
        parameter = self.parameter
        if parameter.is_leaf and parameter.requires_grad and not is_hollow(parameter):
            follow = cast("Follow", parameter.register_post_accumulate_grad_hook)
            precede = cast("Follow", parameter.register_hook)
            self._handles = [precede(self._hear_before), follow(self._hear_after)]

    @_unsaved
    def _hear_before(self, grad: Tensor) -> None:
        if torch.compiler.is_compiling():  # compiled autograd would trace this hook
            return
        with self._faults.guard("kept gradients", self.let_go):
            self._note_before()

    def _hear_after(self, parameter: Tensor) -> None:
        if torch.compiler.is_compiling():
            return
        with self._faults.guard("kept gradients", self.let_go):
            self._note_after()

    def _note_before(self) -> None:
        """Backward is about to add to the gradient, or to create it."""
        gradient = self.parameter.grad
        if gradient is None or self._last is None or not self._last.is_unwritten(gradient):
            self._is_untouched = False
        elif self._num_accumulated == 0:
            self._held.look(gradient)
        self._num_accumulated += 1

    def _note_after(self) -> None:
        """Backward has written to the gradient. Later writes are not its own."""
        gradient = self.parameter.grad
        self._last = None if gradient is None else WeakGradient(gradient)
