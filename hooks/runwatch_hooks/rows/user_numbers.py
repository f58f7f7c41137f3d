"""What a user gives as a number: taken where it is one, named once where it is none."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, SupportsFloat, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from runwatch.layouts import MAX_NAME_BYTES
from runwatch.moving_targets import signs_of
from runwatch_hooks.faults import Faults
from runwatch_hooks.own_log import OwnLog

log = OwnLog(__name__)

_Given = TypeVar("_Given")
_Number = TypeVar("_Number")

_NO_NUMBER: Final = (TypeError, ValueError, OverflowError, RuntimeError)
"""What `float` raises of a text, a dict, an integer beyond all floats, a tensor without numbers."""
_MOST: Final = 256
_MOST_NAMES: Final = 1000


class GivenNumbers:
    """Takes a run's own numbers. None is 'not recorded', and nothing to speak of."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._told: set[str] = set()
        self._names: dict[str, None] = {}
        self.has_moving_target = False
        """Whether a reward is among them, or the losses of two that play against each other: the
        run's loss has no level of its own. Stays true once it was."""

    def take(
        self, given: Mapping[str, _Given], number: Callable[[_Given], _Number]
    ) -> dict[str, _Number]:
        """Those that `number` can make a number of, among the first 256."""
        numbers: dict[str, _Number] = {}
        for name, value in list(given.items())[:_MOST]:
            if value is None:
                continue
            with self._faults.guard(f"metric {name!r}"):
                try:
                    if _can_be_sent(name):
                        numbers[name] = number(value)
                        if name not in self._names:
                            self._note(name)
                    else:
                        wanted = f"wanted a name of 1 to {MAX_NAME_BYTES} bytes, none of them zero"
                        self._tell(name, wanted)
                except _NO_NUMBER as reason:
                    kind = type(value).__name__
                    self._tell(name, f"found a {kind}, wanted a number ({reason})")
        if len(given) > _MOST:
            for name in list(given)[_MOST:]:
                found = f"found {len(given)} numbers at once"
                self._tell(name, f"{found}, wanted at most {_MOST}; give the rest to `log`")
        return numbers

    def take_tokens(
        self, tokens: _Given | None, count: Callable[[_Given], _Number]
    ) -> _Number | None:
        """A step's, where `count` can make a number of them."""
        given = {} if tokens is None else {"tokens": tokens}
        return self.take(given, count).get("tokens")

    def _note(self, name: str) -> None:
        """Of a name that comes for the first time."""
        if self.has_moving_target or len(self._names) >= _MOST_NAMES:
            return
        self._names[name] = None
        signs = signs_of(self._names)
        if signs:
            self.has_moving_target = True
            log.info("%s: the loss is not judged by its level", ", ".join(signs))

    def _tell(self, name: str, reason: str) -> None:
        if name not in self._told and len(self._told) < _MOST_NAMES:
            self._told.add(name)
            log.warning("%r is left out: %s", name, reason)


def _can_be_sent(name: str) -> bool:
    return 0 < len(name.encode()) <= MAX_NAME_BYTES and "\0" not in name


def as_float(value: SupportsFloat) -> float:
    """Of an array with one element, that element: numpy's own `float` wants no dimension at all."""
    if isinstance(value, np.ndarray):
        return float(cast("NDArray[Any]", value).item())
    return float(value)


def as_count(value: SupportsFloat) -> float:
    """Raises ValueError for what is not finite: nobody has counted that."""
    count = as_float(value)
    if not math.isfinite(count):
        raise ValueError(f"it is {count}")
    return count
