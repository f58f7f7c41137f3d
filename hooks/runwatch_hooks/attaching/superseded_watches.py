"""One watch speaks about a model: that of a notebook's cell ends as the cell is run again.

The model may come in another wrapper than before (`DataParallel`, `torch.compile`), or inside of a
larger one. It is the same where all that the former watch's modules train is trained by the new
one's too; models that only share a part, as an actor and a critic do, have each their own.
"""

from collections.abc import Iterable, Iterator
from typing import Final
from weakref import ReferenceType, WeakKeyDictionary, ref

from torch import nn

from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.watching.lifetime import Lifetime

log = OwnLog(__name__)

_LIFETIMES: Final[WeakKeyDictionary[nn.Module, ReferenceType[Lifetime]]] = WeakKeyDictionary()
"""Of all that one process watches. Two calls of `attach` share nothing but the process."""


def end_former(modules: Iterable[nn.Module], run: str) -> None:
    """End the watches that speak about these modules, since `run` will from here on."""
    given = tuple(modules)
    trained = _trained_by(given)
    for lifetime, formers in _open_lifetimes():
        former = _trained_by(formers)
        is_same = bool(former) and former <= trained
        if is_same or any(one is other for one in formers for other in given):
            reason = f"its model was attached again, for the run {run!r}"
            log.warning("run %s is told as stopped: %s", lifetime.run_id, reason)
            lifetime.finish("stopped", reason=reason)


def note(modules: Iterable[nn.Module], lifetime: Lifetime) -> None:
    """The watch of this lifetime speaks about them now."""
    for module in modules:
        _LIFETIMES[module] = ref(lifetime)


def _open_lifetimes() -> Iterator[tuple[Lifetime, list[nn.Module]]]:
    """Each with its modules."""
    found: dict[int, tuple[Lifetime, list[nn.Module]]] = {}
    for module, kept in list(_LIFETIMES.items()):
        lifetime = kept()
        if lifetime is not None and lifetime.is_open:
            found.setdefault(id(lifetime), (lifetime, []))[1].append(module)
    yield from found.values()


def _trained_by(modules: Iterable[nn.Module]) -> set[int]:
    return {id(one) for module in modules for one in module.parameters() if one.requires_grad}
