"""The optimizers of a run, each in its place, so that no learning rate changes its name."""

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary, WeakSet, ref

from torch.optim import Optimizer

from runwatch_hooks.seeing.board import Board
from runwatch_hooks.seeing.known_optimizers import KnownOptimizer
from runwatch_hooks.seeing.numbers import Number, number


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """Of one that lives."""

    known: KnownOptimizer
    first_group: int
    """Its number among the groups of all."""
    num_groups: int


class WatchedOptimizers:
    """Those that `attach` was given, and whatever steps the run's parameters later."""

    def __init__(self, optimizers: Sequence[Optimizer], board: Board) -> None:
        self._known = [KnownOptimizer(one) for one in optimizers]
        self._ever_known: WeakSet[Optimizer] = WeakSet(optimizers)
        self._successors: WeakKeyDictionary[Optimizer, ref[Optimizer]] = WeakKeyDictionary()
        """Who was put in the place of one that still lives, as it steps the same tensors."""
        self._places: WeakKeyDictionary[Optimizer, _Place] = WeakKeyDictionary()
        self._number_groups()
        self._board = board
        self._changes: list[str] = []

    @property
    def known(self) -> Sequence[KnownOptimizer]:
        return self._known

    def take_changes(self) -> list[str]:
        """What is watched in the place of something else, since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def follow(self, optimizer: Optimizer, slots: Sequence[int], *, is_handed: bool) -> None:
        """Take an optimizer that was made later for ours, in the place of those whose tensors it
        steps: its rate stands where theirs stood. One of those that steps once more has its place
        again, and the later one another. Those that are gone keep their places, so that no rate
        changes its name, as long as their tensors are in the run. `is_handed`: whether it steps
        for one that is known."""
        if optimizer in self._places:
            return
        if (place := self._place_of_successor(optimizer)) is not None:
            self._known.append(self._known[place])
            self._known[place] = KnownOptimizer(optimizer)
            self._number_groups()
            return
        wrapped = any(one.param_groups is optimizer.param_groups for one in self._known)
        self._replace(optimizer, set(slots))
        # Else the one that we were given only hands the step on, as Accelerate's.
        if not (wrapped or is_handed or optimizer in self._ever_known):
            self._changes.append(
                f"an optimizer that attach was not given ({type(optimizer).__name__}) steps the "
                "run's parameters: it is watched, scaled and saved from here on"
            )
        self._ever_known.add(optimizer)

    def rates_of(self, optimizer: Optimizer, scale: float = 1.0) -> dict[str, Number]:
        """An optimizer's learning rates, times `scale`: `lr` of the run's first parameter group,
        `lr.1`, `lr.2`, ... of the others. A group whose rate is none has none, as where the
        optimizer finds it by itself (Adafactor's relative steps: `lr=None`)."""
        place = self._places.get(optimizer)
        if place is None:
            return {}
        groups = place.known.param_groups
        if len(groups) != place.num_groups:
            self._number_groups()
            place = self._places[optimizer]
        return {
            f"lr.{index}" if index else "lr": number(group["lr"]) * scale
            for index, group in enumerate(groups, place.first_group)
            if hasattr(group.get("lr"), "__float__")
        }

    def _number_groups(self) -> None:
        """Not at each step: where each parameter has an optimizer, they are many."""
        self._places.clear()
        num_groups = 0
        for known in self._known:
            num_own = len(known.param_groups)
            if (optimizer := known.optimizer) is not None:
                self._places[optimizer] = _Place(known, num_groups, num_own)
            num_groups += num_own

    def _replace(self, optimizer: Optimizer, slots: set[int]) -> None:
        replaced = [
            place
            for place, one in enumerate(self._known)
            if not slots.isdisjoint(self._places_of(one)) or self._is_gone(one)
        ]
        for place in replaced:
            if (former := self._known[place].optimizer) is not None:
                self._successors[former] = ref(optimizer)
        if replaced:
            self._known[replaced[0]] = KnownOptimizer(optimizer)
            for place in reversed(replaced[1:]):
                del self._known[place]
        else:
            self._known.append(KnownOptimizer(optimizer))
        self._number_groups()

    def _place_of_successor(self, optimizer: Optimizer) -> int | None:
        found = self._successor_of(optimizer)
        if found is None:
            return None
        places = (place for place, one in enumerate(self._known) if one.optimizer is found)
        return next(places, None)

    def _successor_of(self, optimizer: Optimizer) -> Optimizer | None:
        later = self._successors.get(optimizer)
        return None if later is None else later()

    def _places_of(self, known: KnownOptimizer) -> Sequence[int]:
        tensors = [tensor for group in known.param_groups for tensor in group["params"]]
        return self._board.slots_of_tensors(tensors)

    def _is_gone(self, known: KnownOptimizer) -> bool:
        """With all that it stepped."""
        return known.optimizer is None and not self._places_of(known)
