"""The optimizers of a run, each in its place, so that no learning rate changes its name."""

from collections.abc import Iterator, Sequence

from torch.optim import Optimizer

from runwatch_hooks.seeing.board import Board
from runwatch_hooks.seeing.known_optimizers import KnownOptimizer
from runwatch_hooks.seeing.numbers import Number, number


class WatchedOptimizers:
    """Those that `attach` was given, and whatever steps the run's parameters later."""

    def __init__(self, optimizers: Sequence[Optimizer], board: Board) -> None:
        self._known = [KnownOptimizer(one) for one in optimizers]
        self._board = board
        self._changes: list[str] = []

    @property
    def known(self) -> Sequence[KnownOptimizer]:
        return self._known

    def living(self) -> Iterator[Optimizer]:
        found = (one.optimizer for one in self._known)
        return (one for one in found if one is not None)

    def take_changes(self) -> list[str]:
        """What is watched in the place of something else, since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def follow(self, optimizer: Optimizer, slots: Sequence[int]) -> None:
        """Take an optimizer that was made later for ours, in the place of those whose tensors it
        steps: its rate stands where theirs stood. Those that are gone keep their places, so that
        no rate changes its name, as long as their tensors are in the run."""
        if any(one.optimizer is optimizer for one in self._known):
            return
        ours = set(slots)
        wrapped = any(one.param_groups is optimizer.param_groups for one in self._known)
        replaced = [
            place
            for place, one in enumerate(self._known)
            if not ours.isdisjoint(self._places_of(one)) or self._is_gone(one)
        ]
        if replaced:
            self._known[replaced[0]] = KnownOptimizer(optimizer)
            for place in reversed(replaced[1:]):
                del self._known[place]
        else:
            self._known.append(KnownOptimizer(optimizer))
        if not wrapped:  # else the one that we were given only handed the step on, as Accelerate's
            self._changes.append(
                f"an optimizer that attach was not given ({type(optimizer).__name__}) steps the "
                "run's parameters: it is watched, scaled and saved from here on"
            )

    def rates_of(self, optimizer: Optimizer, scale: float = 1.0) -> dict[str, Number]:
        """An optimizer's learning rates, times `scale`: `lr` of the run's first parameter group,
        `lr.1`, `lr.2`, ... of the others. A group whose rate is none has none, as where the
        optimizer finds it by itself (Adafactor's relative steps: `lr=None`)."""
        groups = [(one.optimizer, group) for one in self._known for group in one.param_groups]
        return {
            f"lr.{index}" if index else "lr": number(group["lr"]) * scale
            for index, (owner, group) in enumerate(groups)
            if owner is optimizer and hasattr(group.get("lr"), "__float__")
        }

    def _places_of(self, known: KnownOptimizer) -> Sequence[int]:
        tensors = [tensor for group in known.param_groups for tensor in group["params"]]
        return self._board.slots_of_tensors(tensors)

    def _is_gone(self, known: KnownOptimizer) -> bool:
        """With all that it stepped."""
        return known.optimizer is None and not self._places_of(known)
