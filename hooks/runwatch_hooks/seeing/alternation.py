"""Whether optimizers alternate: each steps after backward passes of its own.

This is so for a GAN's generator and discriminator, or an actor and its critic. The loss of one then
depends on how good the other has become, and need not fall. Two optimizers that share one backward
pass (Muon for matrices, Adam for the rest) are one training. So are optimizers that step within
the backward pass, one for each parameter.

The two cases differ in the layers that are stepped after (or within) one pass and the next: when
optimizers alternate, these are different layers. The gradients cannot tell, because a program may
replace them with tensors of its own between two steps.
"""

from collections.abc import Mapping, Sequence

from torch.optim import Optimizer

from runwatch_hooks.wrapping.backward_pass import is_in_backward


class AlternatingOptimizers:
    """Remembers which layers were stepped after the last two backward passes of a row."""

    def __init__(self) -> None:
        self._have_alternated = False
        self._is_new_pass = False
        self._ignores_passes = False
        self._before: Mapping[int, Sequence[int]] = {}
        self._stepped: dict[int, Sequence[int]] = {}
        """The layers' slots of each optimizer, by its identity, since the last pass began."""

    def begin_pass(self) -> None:
        """A backward pass begins. One inside another (activation checkpointing) is part of it."""
        self._is_new_pass |= not (self._ignores_passes or is_in_backward())

    def begin_step(self, *, has_closure: bool) -> None:
        """A step begins. Passes within it are its own (AdaHessian's estimate of the curvature), and
        bring no new gradients, unless its closure runs them."""
        self._ignores_passes = not has_closure

    def after_step(self, optimizer: Optimizer, slots: Sequence[int]) -> None:
        """The optimizer has stepped the layers at `slots`. A pass inside its closure counts."""
        self._ignores_passes = False
        if self._have_alternated:
            return
        if self._is_new_pass:
            self._judge()
            self._before, self._stepped = self._stepped, {}
            self._is_new_pass = False
        self._stepped[id(optimizer)] = slots

    def end_row(self) -> bool:
        """Whether optimizers have alternated in this row or in an earlier one."""
        self._judge()
        self._before, self._stepped = {}, {}
        self._ignores_passes = False  # also after a step that raised
        return self._have_alternated

    def _judge(self) -> None:
        before, stepped = self._before, self._stepped
        if before and stepped and not _have_layers_in_common(before, stepped):
            self._have_alternated = True


def _have_layers_in_common(
    some: Mapping[int, Sequence[int]], others: Mapping[int, Sequence[int]]
) -> bool:
    if any(others.get(one) == slots for one, slots in some.items()):
        return True  # the same optimizer stepped again: the usual case, and quick to find
    layers = {slot for slots in some.values() for slot in slots}
    return not all(layers.isdisjoint(slots) for slots in others.values())
