"""The optimizers of a run, in a fixed order, so that each learning rate keeps its metric's name."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final
from weakref import WeakKeyDictionary, WeakSet, ref

from torch.optim import Optimizer

from runwatch_hooks.step.layers import KnownOptimizer
from runwatch_hooks.step.model import ModelStatistics
from runwatch_hooks.step.numbers import Number, number

_MAX_RATES: Final = 128
"""Parameter groups whose learning rates are recorded. A row of more than 512 metrics is lost, and
some programs have a group, or an optimizer, for each of a thousand parameters."""


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """The place of a living optimizer."""

    known: KnownOptimizer
    first_group: int
    """Index of its first parameter group among the groups of all optimizers."""
    num_groups: int


class WatchedOptimizers:
    """The optimizers given to `attach`, and any other that later steps the run's parameters."""

    def __init__(self, optimizers: Sequence[Optimizer], statistics: ModelStatistics) -> None:
        self._known = [KnownOptimizer(one) for one in optimizers]
        self._ever_known: WeakSet[Optimizer] = WeakSet(optimizers)
        self._successors: WeakKeyDictionary[Optimizer, ref[Optimizer]] = WeakKeyDictionary()
        """A living optimizer -> the one that took its place, because it steps the same tensors."""
        self._places: WeakKeyDictionary[Optimizer, _Place] = WeakKeyDictionary()
        self._statistics = statistics
        self._changes: list[str] = []
        self._has_told_of_many = False
        self._number_groups()

    @property
    def known(self) -> Sequence[KnownOptimizer]:
        return self._known

    def take_changes(self) -> list[str]:
        """Messages about optimizers watched instead of others, since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def follow(self, optimizer: Optimizer, slots: Sequence[int], *, is_handed: bool) -> None:
        """Watch an optimizer that steps the run's parameters.

        A new one takes the place of those whose tensors it steps, so that its learning rate is
        recorded under their name. If one of those steps again, it gets its place back, and the
        newer one another. Optimizers that are gone keep their places as long as their tensors
        belong to the run. `is_handed`: it was called by a known optimizer that delegates to it.
        """
        if optimizer in self._places:
            return
        if (place := self._place_of_successor(optimizer)) is not None:
            self._known.append(self._known[place])
            self._known[place] = KnownOptimizer(optimizer)
            self._number_groups()
            return
        wrapped = any(one.param_groups is optimizer.param_groups for one in self._known)
        self._replace(optimizer, set(slots))
        # If it is wrapped, the optimizer given to `attach` only delegates to it, as Accelerate's.
        if not (wrapped or is_handed or optimizer in self._ever_known):
            self._changes.append(
                f"an optimizer that attach was not given ({type(optimizer).__name__}) steps the "
                "run's parameters: it is watched, scaled and saved from here on"
            )
        self._ever_known.add(optimizer)

    def rates_of(self, optimizer: Optimizer, scale: float = 1.0) -> dict[str, Number]:
        """An optimizer's learning rates, times `scale`: `lr` for the run's first parameter group,
        `lr.1`, `lr.2`, ... for the others, of the first 128 groups. A group without a number as its
        rate is left out, such as Adafactor's with relative steps (`lr=None`)."""
        place = self._places.get(optimizer)
        if place is None:
            return {}
        groups = place.known.param_groups
        if len(groups) != place.num_groups:
            self._number_groups()
            place = self._places[optimizer]
        recorded = islice(groups, max(_MAX_RATES - place.first_group, 0))
        return {
            f"lr.{index}" if index else "lr": number(group["lr"]) * scale
            for index, group in enumerate(recorded, place.first_group)
            if hasattr(group.get("lr"), "__float__")
        }

    def _number_groups(self) -> None:
        """Index the groups. Not done at each step: with an optimizer per parameter they are
        many."""
        self._places.clear()
        num_groups = 0
        for known in self._known:
            num_own = len(known.param_groups)
            if (optimizer := known.optimizer) is not None:
                self._places[optimizer] = _Place(known, num_groups, num_own)
            num_groups += num_own
        if num_groups > _MAX_RATES and not self._has_told_of_many:
            self._has_told_of_many = True
            self._changes.append(
                f"{num_groups} parameter groups: the learning rates of the first {_MAX_RATES} are "
                "recorded"
            )

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
        return self._statistics.slots_of_tensors(tensors)

    def _is_gone(self, known: KnownOptimizer) -> bool:
        """Whether the optimizer is gone, and all its tensors have left the run."""
        return known.optimizer is None and not self._places_of(known)
