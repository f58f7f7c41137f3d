"""One watch speaks about a model: that of a notebook's cell ends as the cell is run again."""

from collections.abc import Iterable
from typing import Final
from weakref import ReferenceType, WeakKeyDictionary, ref

from torch import nn

from runwatch_hooks.lifetime import Lifetime
from runwatch_hooks.own_log import OwnLog

log = OwnLog(__name__)

_LIFETIMES: Final[WeakKeyDictionary[nn.Module, ReferenceType[Lifetime]]] = WeakKeyDictionary()
"""Of all that one process watches. Two calls of `attach` share nothing but the process."""


def end_former(modules: Iterable[nn.Module], run: str) -> None:
    """End the watches that speak about these modules, since `run` will from here on."""
    for module in modules:
        former = _LIFETIMES.get(module)
        lifetime = None if former is None else former()
        if lifetime is not None and lifetime.is_open:
            reason = f"its model was attached again, for the run {run!r}"
            log.warning("run %s is told as stopped: %s", lifetime.run_id, reason)
            lifetime.finish("stopped", reason=reason)


def note(modules: Iterable[nn.Module], lifetime: Lifetime) -> None:
    """The watch of this lifetime speaks about them now."""
    for module in modules:
        _LIFETIMES[module] = ref(lifetime)
