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
from typing import Final

from runwatch_hooks.step.gradient_marks import GradientVersion
from runwatch_hooks.step.observer import Layers, OptimizerStep, StepEnd, StepNotes, StepObserver
from runwatch_hooks.step.torch_hooks import is_in_backward

_MAX_ROWS_OF_TURN: Final = 8
"""At most so many rows of one player lie between two turns of the other. WGAN's critic takes five
steps to one of the generator (Arjovsky et al. 2017, algorithm 1). Phases of one training last an
epoch, or tens of steps."""

_MAX_REMEMBERED: Final = 4096
"""Optimizers of one turn: a limit for programs that make new ones for each row."""

_Stepped = Mapping[int, Sequence[int]]
"""The layers' slots of each optimizer that stepped in a row, by the optimizer's identity."""


class Alternation(StepObserver):
    """Remembers which layers were stepped after the last two backward passes of a row."""

    name = "alternation"

    def __init__(self) -> None:
        self._have_alternated = False
        self._is_new_pass = False
        self._ignores_passes = False
        self._layers = Layers(lambda _: None, lambda: ())
        self._side_pass: _SidePass | None = None
        """The first since the last pass that brought gradients, or since the row began."""
        self._before: Mapping[int, Sequence[int]] = {}
        self._stepped: dict[int, Sequence[int]] = {}
        """The layers' slots of each optimizer, by its identity, since the last pass began."""
        self._in_row: dict[int, Sequence[int]] = {}
        """The same of the whole row."""
        self._rows = _RowPlayers()

    def attach(self, layers: Layers) -> None:
        self._layers = layers

    def on_backward(self, *, accumulates: bool) -> None:
        """A backward pass begins. One inside another (activation checkpointing) is part of it.

        `accumulates`: it adds to the gradients, as `backward` does. `torch.autograd.grad` does not:
        its pass belongs to an optimizer only if the program then puts gradients there itself.
        """
        if self._have_alternated or self._ignores_passes or is_in_backward():
            return
        if accumulates:
            self._is_new_pass = True
        elif self._stepped and not self._is_new_pass and self._side_pass is None:
            self._side_pass = _SidePass(self._layers)

    def before_optimizer(self, step: OptimizerStep) -> None:
        """Passes within the step are its own (AdaHessian's estimate of the curvature), and bring no
        new gradients, unless its closure runs them."""
        self._ignores_passes = not step.has_closure
        if not step.has_closure and self._side_pass is not None:
            self._is_new_pass |= self._side_pass.has_brought(step.slots)

    def after_optimizer(self, step: OptimizerStep) -> None:
        """A pass inside its closure counts."""
        self._ignores_passes = False
        if self._have_alternated:
            return
        if step.has_closure and self._side_pass is not None:
            self._is_new_pass |= self._side_pass.has_brought(step.slots)
        if self._is_new_pass:
            if self._before:
                self._judge()
            self._before, self._stepped = self._stepped, {}
            self._is_new_pass = False
            self._side_pass = None
        self._stepped[id(step.optimizer)] = step.slots
        self._in_row[id(step.optimizer)] = step.slots

    def end_step(self, end: StepEnd) -> StepNotes | None:
        """1 if optimizers have alternated in this row or in an earlier one."""
        if self._before:
            self._judge()
        if not self._have_alternated:
            self._have_alternated = self._rows.end_row(self._in_row)
        self._before, self._stepped, self._in_row = {}, {}, {}
        self._side_pass = None
        self._ignores_passes = False  # also after a step that raised
        return StepNotes({"alternating": 1.0}) if self._have_alternated else None

    def _judge(self) -> None:
        if self._stepped and not _have_layers_in_common(self._before, self._stepped):
            self._have_alternated = True


class _RowPlayers:
    """Whether optimizers alternate from row to row, as in a GAN that reports each player's step.

    A critic often takes several steps to one of the generator. Phases of one training look alike
    from afar: first the head and then the rest, or one block of layers after another. They last
    longer, or do not give way again to the phase before. So the layers that the current turn and
    the one before it have stepped are remembered.
    """

    def __init__(self) -> None:
        self._before: _Stepped = {}
        self._now: _Stepped = {}
        self._num_rows = 0
        """Rows of the current turn."""

    def end_row(self, stepped: _Stepped) -> bool:
        """Whether this row gives the turn back to the player before, after a short turn of the
        other's. A row without a step (accumulation, a step that was skipped) is part of no turn."""
        if not stepped:
            return False
        if stepped == self._now:  # the usual row
            self._num_rows += 1
            return False
        if not self._now or _have_layers_in_common(self._now, stepped):
            # Those that step together are one player, also where each leaves out rows of its own.
            has_room = len(self._now) < _MAX_REMEMBERED
            self._now = {**self._now, **stepped} if has_room else dict(stepped)
            self._num_rows += 1
            return False
        is_back = bool(self._before) and _have_layers_in_common(self._before, stepped)
        was_short = self._num_rows <= _MAX_ROWS_OF_TURN
        self._before, self._now, self._num_rows = self._now, dict(stepped), 1
        return is_back and was_short


class _SidePass:
    """A pass of `torch.autograd.grad`, which leaves the gradients of parameters as they are.

    Some programs look at gradients with it between two optimizers' steps, for a diagnosis or a
    penalty. Others train with it, and put what it returns into `grad` by hand. Only the second kind
    of pass brings an optimizer new gradients. So one gradient of each optimizer is remembered as it
    was before the first of several such passes.
    """

    def __init__(self, layers: Layers) -> None:
        """The pass begins."""
        self._layers = layers
        self._marks = {slots[0]: self._mark(slots) for slots in layers.slots_of_all() if slots}
        """First slot of an optimizer -> the first of its slots with a gradient, and that gradient;
        None if it had no gradient."""

    def has_brought(self, slots: Sequence[int]) -> bool:
        """Whether the gradients of the optimizer with these slots have changed since. One that was
        made since counts as changed."""
        if not self._marks:
            return False
        mark = self._marks.get(slots[0])
        if mark is None:
            return self._mark(slots) is not None
        slot, version = mark
        return not version.is_unchanged(self._layers.gradient_at(slot))

    def _mark(self, slots: Sequence[int]) -> tuple[int, GradientVersion] | None:
        for slot in slots:
            if (grad := self._layers.gradient_at(slot)) is not None:
                return slot, GradientVersion(grad, 0)
        return None


def _have_layers_in_common(
    some: Mapping[int, Sequence[int]], others: Mapping[int, Sequence[int]]
) -> bool:
    """Whether two sets of optimizers step some of the same layers. Both contain the slots of
    each optimizer's layers, by the optimizer's identity."""
    if any(others.get(one) == slots for one, slots in some.items()):
        return True  # the same optimizer stepped again: the usual case, and quick to find
    layers = {slot for slots in some.values() for slot in slots}
    return not all(layers.isdisjoint(slots) for slots in others.values())
