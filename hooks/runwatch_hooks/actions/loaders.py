"""Saves and restores the position of a torchdata StatefulDataLoader without side effects.

The loader creates its iterator when it is asked for its state, and again after a state was loaded.
A new iterator draws its seeds, from torch's global generator or its own. So asking for the position
would change the random numbers of the training.
"""

from typing import Any, Final, cast

import torch

from runwatch_hooks.actions.rng import HasState

_ITERATOR: Final = "_iterator"
_NEXT: Final = "next_iter_state"
_NOBODYS: Final = "_runwatch_attribute_of_nobody"


class LoaderPosition:
    """A StatefulDataLoader with its generators, as an object with state."""

    def __init__(self, loader: HasState) -> None:
        self._loader = loader

    def state_dict(self) -> dict[str, object]:
        """Position and generators. If the loader has no iterator yet, none is created: the position
        is the state that its first iterator will be created from."""
        loader: Any = self._loader
        has_begun = getattr(loader, _ITERATOR) is not None
        return {
            "has_begun": has_begun,
            "position": loader.state_dict() if has_begun else (getattr(loader, _NEXT) or {}),
            "generators": [one.get_state() for one in _generators_of(loader)],
        }

    def load_state_dict(self, state_dict: dict[str, object], /) -> None:
        """If there was an iterator at the capture, it is created here. What it draws is then drawn
        before the generators are restored, and the loop draws the same numbers as before."""
        self._loader.load_state_dict(cast("dict[str, object]", state_dict["position"]))
        if state_dict["has_begun"]:
            self._loader.state_dict()
        saved = cast("list[torch.Tensor]", state_dict["generators"])
        for generator, state in zip(_generators_of(self._loader), saved, strict=True):
            generator.set_state(state)


def draws_by_itself(item: object) -> bool:
    """Whether it is a loader that needs a `LoaderPosition`. It may be wrapped in an object that
    passes attributes on, but not in one that answers to every name."""
    return _has(item, _ITERATOR) and _has(item, _NEXT) and not _has(item, _NOBODYS)


def _has(item: object, name: str) -> bool:
    try:
        getattr(item, name)
    except Exception:  # noqa: BLE001  a `__getattr__` may raise anything, such as KeyError
        return False
    return True


def _generators_of(loader: object) -> list[torch.Generator]:
    """The loader's generators, given to it or made for its sampler. torchdata itself restores them
    to the beginning of the epoch and draws its order again, but not its seeds."""
    holders = (loader, getattr(loader, "sampler", None))
    found = [getattr(holder, "generator", None) for holder in holders]
    generators = [one for one in found if isinstance(one, torch.Generator)]
    return list({id(one): one for one in generators}.values())
