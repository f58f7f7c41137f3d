"""Where a data loader stands, taken and put back with the training's generators left as they were.

torchdata's StatefulDataLoader makes its iterator to say where it stands, and again after it was put
somewhere; an iterator draws its seeds as it is made, from torch's generator or from its own.
"""

from typing import Any, Final, cast

import torch

from runwatch_hooks.actions.rng import HasState

_ITERATOR: Final = "_iterator"
_NEXT: Final = "next_iter_state"


class LoaderPosition:
    """A StatefulDataLoader, with its generators, among what has state."""

    def __init__(self, loader: HasState) -> None:
        self._loader = loader

    def state_dict(self) -> dict[str, object]:
        """Of a loader that nobody has gone over yet: what its first iterator will be made from."""
        loader: Any = self._loader
        has_begun = getattr(loader, _ITERATOR) is not None
        return {
            "has_begun": has_begun,
            "position": loader.state_dict() if has_begun else (getattr(loader, _NEXT) or {}),
            "generators": [one.get_state() for one in _generators_of(loader)],
        }

    def load_state_dict(self, state_dict: dict[str, object], /) -> None:
        """The iterator is made here, where it had been made: what it draws is drawn here, and can
        be put back, and the loop draws nothing that it did not draw the first time."""
        self._loader.load_state_dict(cast("dict[str, object]", state_dict["position"]))
        if state_dict["has_begun"]:
            self._loader.state_dict()
        saved = cast("list[torch.Tensor]", state_dict["generators"])
        for generator, state in zip(_generators_of(self._loader), saved, strict=True):
            generator.set_state(state)


def draws_by_itself(item: object) -> bool:
    """Whether it is a loader that is to be held as a `LoaderPosition`."""
    return hasattr(item, _ITERATOR) and hasattr(item, _NEXT)


def _generators_of(loader: object) -> list[torch.Generator]:
    """Those that it was given, or made for its sampler: torchdata puts them back to where the pass
    began, and draws the order of the pass anew, but not its seeds."""
    holders = (loader, getattr(loader, "sampler", None))
    found = [getattr(holder, "generator", None) for holder in holders]
    generators = [one for one in found if isinstance(one, torch.Generator)]
    return list({id(one): one for one in generators}.values())
