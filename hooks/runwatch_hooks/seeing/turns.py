"""Whether optimizers take turns: each has backward passes of its own.

So do a generator and its judge, an actor and its critic: the loss of one depends on how good the
other is by now, and need not fall. Two optimizers that share each backward pass (Muon for matrices,
Adam for the rest) are one training, and so are those that step within it, one for each parameter.

What tells them apart is the layers that are stepped after one pass, or within it, and those of the
next: in a game they are others. The gradients say nothing of it, as a program may put others of
its own making in their place between two steps.
"""

from collections.abc import Mapping, Sequence

from torch.optim import Optimizer

from runwatch_hooks.wrapping.backward_pass import is_in_backward


class Turns:
    """Holds what was stepped by the last two passes of a row, and no more."""

    def __init__(self) -> None:
        self._are_taken = False
        self._is_new_pass = False
        self._before: Mapping[int, Sequence[int]] = {}
        self._stepped: dict[int, Sequence[int]] = {}
        """The layers' slots of each optimizer, by its identity, since the last pass began."""

    def begin_pass(self) -> None:
        """A pass within another is a part of it, as of a module that is checkpointed."""
        self._is_new_pass |= not is_in_backward()

    def after_step(self, optimizer: Optimizer, slots: Sequence[int]) -> None:
        """Of the layers at `slots`; a pass that lay within the step, in its closure, counts."""
        if self._are_taken:
            return
        if self._is_new_pass:
            self._judge()
            self._before, self._stepped = self._stepped, {}
            self._is_new_pass = False
        self._stepped[id(optimizer)] = slots

    def end_row(self) -> bool:
        """Whether turns were taken in this row, or in one before it."""
        self._judge()
        self._before, self._stepped = {}, {}
        return self._are_taken

    def _judge(self) -> None:
        before, stepped = self._before, self._stepped
        if before and stepped and not _have_layers_in_common(before, stepped):
            self._are_taken = True


def _have_layers_in_common(
    some: Mapping[int, Sequence[int]], others: Mapping[int, Sequence[int]]
) -> bool:
    if any(others.get(one) == slots for one, slots in some.items()):
        return True  # the same optimizer, as nearly always: that is soon found
    layers = {slot for slots in some.values() for slot in slots}
    return not all(layers.isdisjoint(slots) for slots in others.values())
