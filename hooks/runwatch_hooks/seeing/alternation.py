"""Whether optimizers alternate: each steps after backward passes of its own.

This is so for a GAN's generator and discriminator, or an actor and its critic. The loss of one then
depends on how good the other has become, and need not fall. Two optimizers that share one backward
pass (Muon for matrices, Adam for the rest) are one training. So are optimizers that step within
the backward pass, one for each parameter.

The two cases differ in the layers that are stepped after (or within) one pass and the next: when
optimizers alternate, these are different layers. The gradients cannot tell, because a program may
replace them with tensors of its own between two steps.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from torch import Tensor
from torch.optim import Optimizer

from runwatch_hooks.seeing.row_players import RowPlayers
from runwatch_hooks.seeing.side_passes import SidePasses
from runwatch_hooks.seeing.stepped_layers import have_layers_in_common
from runwatch_hooks.wrapping.backward_pass import is_in_backward


class AlternatingOptimizers:
    """Remembers which layers were stepped after the last two backward passes of a row."""

    def __init__(
        self,
        gradient_at: Callable[[int], Tensor | None],
        slots_of_all: Callable[[], Iterable[Sequence[int]]],
    ) -> None:
        """`gradient_at` returns the gradient of the layer at a slot, `slots_of_all` the layers'
        slots of each living optimizer."""
        self._slots_of_all = slots_of_all
        self._have_alternated = False
        self._is_new_pass = False
        self._ignores_passes = False
        self._has_closure = False
        self._side_passes = SidePasses(gradient_at)
        self._before: Mapping[int, Sequence[int]] = {}
        self._stepped: dict[int, Sequence[int]] = {}
        """The layers' slots of each optimizer, by its identity, since the last pass began."""
        self._in_row: dict[int, Sequence[int]] = {}
        """The same of the whole row."""
        self._rows = RowPlayers()

    def begin_pass(self, *, accumulates: bool) -> None:
        """A backward pass begins. One inside another (activation checkpointing) is part of it.

        `accumulates`: it adds to the gradients, as `backward` does. `torch.autograd.grad` does not:
        its pass belongs to an optimizer only if the program then puts gradients there itself.
        """
        if self._have_alternated or self._ignores_passes or is_in_backward():
            return
        if accumulates:
            self._is_new_pass = True
        elif self._stepped and not self._is_new_pass:
            self._side_passes.begin(self._slots_of_all())

    def begin_step(self, slots: Sequence[int], *, has_closure: bool) -> None:
        """A step of the layers at `slots` begins. Passes within it are its own (AdaHessian's
        estimate of the curvature), and bring no new gradients, unless its closure runs them."""
        self._ignores_passes = not has_closure
        self._has_closure = has_closure
        if not has_closure:
            self._is_new_pass |= self._side_passes.have_brought(slots)

    def after_step(self, optimizer: Optimizer, slots: Sequence[int]) -> None:
        """The optimizer has stepped the layers at `slots`. A pass inside its closure counts."""
        self._ignores_passes = False
        if self._have_alternated:
            return
        if self._has_closure:
            self._is_new_pass |= self._side_passes.have_brought(slots)
        if self._is_new_pass:
            self._judge()
            self._before, self._stepped = self._stepped, {}
            self._is_new_pass = False
            self._side_passes.forget()
        self._stepped[id(optimizer)] = slots
        self._in_row[id(optimizer)] = slots

    def end_row(self) -> bool:
        """Whether optimizers have alternated in this row or in an earlier one."""
        self._judge()
        if not self._have_alternated:
            self._have_alternated = self._rows.end_row(self._in_row)
        self._before, self._stepped, self._in_row = {}, {}, {}
        self._side_passes.forget()
        self._ignores_passes = False  # also after a step that raised
        return self._have_alternated

    def _judge(self) -> None:
        before, stepped = self._before, self._stepped
        if before and stepped and not have_layers_in_common(before, stepped):
            self._have_alternated = True
