"""One watch speaks about a model: that of a notebook's cell ends as the cell is run again."""

from collections.abc import Iterable
from typing import Final
from weakref import ReferenceType, WeakKeyDictionary, ref

from torch import nn

from runwatch_hooks.live import LiveWatch
from runwatch_hooks.own_log import OwnLog

log = OwnLog(__name__)

_WATCHES: Final[WeakKeyDictionary[nn.Module, ReferenceType[LiveWatch]]] = WeakKeyDictionary()
"""Of all that one process watches. Two calls of `attach` share nothing but the process."""


def end_former(modules: Iterable[nn.Module], run: str) -> None:
    """End the watches that speak about these modules, since `run` will from here on."""
    for module in modules:
        former = _WATCHES.get(module)
        watch = None if former is None else former()
        if watch is not None and watch.is_open:
            reason = f"its model was attached again, for the run {run!r}"
            log.warning("run %s is told as stopped: %s", watch.run_id, reason)
            watch.finish("stopped", reason=reason)


def note(modules: Iterable[nn.Module], watch: LiveWatch) -> None:
    """This watch speaks about them now."""
    for module in modules:
        _WATCHES[module] = ref(watch)
