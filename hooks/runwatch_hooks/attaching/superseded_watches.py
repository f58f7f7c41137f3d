"""A model has one watch: attaching it again, as in a notebook cell, ends the earlier one.

The model may come in another wrapper than before (`DataParallel`, `torch.compile`), or inside a
larger model. It counts as the same if the new watch covers every trainable parameter of the
earlier one. Models that share only some parameters, such as an actor and a critic, keep a watch
each.
"""

from collections.abc import Iterable, Iterator
from typing import Final
from weakref import ReferenceType, WeakKeyDictionary, ref

from torch import nn

from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.watching.lifetime import Lifetime

log = OwnLog(__name__)

_LIFETIMES: Final[WeakKeyDictionary[nn.Module, ReferenceType[Lifetime]]] = WeakKeyDictionary()
"""The module -> the lifetime of its watch, for all watches of the process. Module-level, because
two calls of `attach` have nothing but the process in common."""


def end_former(modules: Iterable[nn.Module], run: str) -> None:
    """End the watches on the same model, because `run` watches it from now on."""
    given = tuple(modules)
    trained = _trained_by(given)
    for lifetime, formers in _open_lifetimes():
        former = _trained_by(formers)
        is_same = bool(former) and former <= trained
        if is_same or any(one is other for one in formers for other in given):
            reason = f"its model was attached again, for the run {run!r}"
            log.warning("run %s is recorded as stopped: %s", lifetime.run_id, reason)
            lifetime.finish("stopped", reason=reason)


def note(modules: Iterable[nn.Module], lifetime: Lifetime) -> None:
    """Remember that these modules are watched by the watch with this lifetime."""
    for module in modules:
        _LIFETIMES[module] = ref(lifetime)


def _open_lifetimes() -> Iterator[tuple[Lifetime, list[nn.Module]]]:
    """Each open lifetime, with the modules that its watch was given."""
    found: dict[int, tuple[Lifetime, list[nn.Module]]] = {}
    for module, kept in list(_LIFETIMES.items()):
        lifetime = kept()
        if lifetime is not None and lifetime.is_open:
            found.setdefault(id(lifetime), (lifetime, []))[1].append(module)
    yield from found.values()


def _trained_by(modules: Iterable[nn.Module]) -> set[int]:
    return {id(one) for module in modules for one in module.parameters() if one.requires_grad}
