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
from runwatch_hooks.ranks.portions import is_hollow
from runwatch_hooks.seeing.held_numbers import HeldNumbers
from runwatch_hooks.seeing.known_optimizers import parameters_of
from runwatch_hooks.seeing.weak_gradients import WeakGradient

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


class KeptGradients:
    """Looks at one parameter of each optimizer. One is enough: a program that clears only some
    gradients does so on purpose."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._witnesses: WeakKeyDictionary[Optimizer, _Witness] = WeakKeyDictionary()
        self._is_kept = False
        self._has_told = False

    def before_step(self, optimizer: Optimizer) -> None:
        """An optimizer is about to step, and its gradients are complete."""
        witness = self._witnesses.get(optimizer)
        if witness is not None and witness.gradient is not None:
            self._is_kept = witness.look() or self._is_kept
            return
        found = next((one for one in parameters_of(optimizer) if one.grad is not None), None)
        if found is not None:
            if witness is not None:
                witness.let_go()
            self._witnesses[optimizer] = _Witness(found, self._faults)

    def after_step(self, optimizer: Optimizer) -> None:
        witness = self._witnesses.get(optimizer)
        if witness is not None:
            witness.remember()

    def end_row(self) -> float | None:
        """1 if a step of the row used gradients that were not cleared, 0 if none does any more,
        None if none ever did."""
        is_kept, self._is_kept = self._is_kept, False
        self._has_told = self._has_told or is_kept
        return float(is_kept) if self._has_told else None

    def close(self) -> None:
        """Remove all hooks from the parameters."""
        for witness in self._witnesses.values():
            witness.let_go()


class _Witness:
    """One parameter, and what happened to its gradient since the last step."""

    def __init__(self, parameter: Tensor, faults: Faults) -> None:
        self._parameter = parameter
        self._faults = faults
        self._last: WeakGradient | None = None
        self._held = HeldNumbers()
        self._num_same = 0
        self._handles: list[RemovableHandle] = []
        self._num_accumulated = 0
        self._is_untouched = True
        self._num_cleared = 0

    @property
    def gradient(self) -> Tensor | None:
        return self._parameter.grad

    def look(self) -> bool:
        """Whether the gradient is known to contain that of the step before."""
        gradient = self.gradient
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
        gradient = self.gradient
        self._last = None if gradient is None else WeakGradient(gradient)
        self._num_accumulated, self._is_untouched = 0, True

    def let_go(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles, self._num_cleared = [], 0
        self._num_same = SAME_FOR - _AGAIN_AFTER

    def _follow(self) -> None:
        parameter = self._parameter
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
        gradient = self.gradient
        if gradient is None or self._last is None or not self._last.is_unwritten(gradient):
            self._is_untouched = False
        elif self._num_accumulated == 0:
            self._held.look(gradient)
        self._num_accumulated += 1

    def _note_after(self) -> None:
        """Backward has written to the gradient. Later writes are not its own."""
        gradient = self.gradient
        self._last = None if gradient is None else WeakGradient(gradient)
