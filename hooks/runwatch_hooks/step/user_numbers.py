"""Numbers given by the user: checked and converted, or left out with one warning per name."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, SupportsFloat, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from runwatch.aliases import role_of, series_of
from runwatch.layouts import MAX_NAME_BYTES
from runwatch.moving_targets import signs_of
from runwatch.series import Role
from runwatch_hooks.faults import Faults
from runwatch_hooks.own_log import OwnLog

log = OwnLog(__name__)

_Given = TypeVar("_Given")
_Number = TypeVar("_Number")

_NO_NUMBER: Final = (TypeError, ValueError, OverflowError, RuntimeError)
"""What `float` raises for a string, a dict, an integer too large, or a tensor without one value."""
_COPIED: Final = (Role.EVALUATION_LOSS, Role.REWARD)
"""Recorded under our names too: nothing else in the hook records them."""
_MOST: Final = 256
_MOST_NAMES: Final = 1000


class UserNumbers:
    """Takes the metrics that a program gives. None means not recorded, and gives no warning."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._told: set[str] = set()
        self._names: dict[str, None] = {}
        self._read_as: dict[str, str] = {}
        """The metric that rules read -> the name under which the program gives it."""
        self.has_moving_target = False
        """Whether a reward is among the metrics, or the losses of two adversaries. The loss then
        has no level by which the run could be judged. Once true, it stays true."""

    def take(
        self, given: Mapping[str, _Given], number: Callable[[_Given], _Number]
    ) -> dict[str, _Number]:
        """The metrics that `number` can convert, among the first 256; others are left out."""
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
        return numbers | self._for_rules(numbers)

    def take_tokens(
        self, tokens: _Given | None, count: Callable[[_Given], _Number]
    ) -> _Number | None:
        """The number of tokens of a step, if `count` can convert it."""
        given = {} if tokens is None else {"tokens": tokens}
        return self.take(given, count).get("tokens")

    def _for_rules(self, numbers: Mapping[str, _Number]) -> dict[str, _Number]:
        """The numbers under the names that rules read, unless the program itself gives those."""
        return {
            metric: numbers[name]
            for metric, name in self._read_as.items()
            if name in numbers and metric not in self._names
        }

    def _note(self, name: str) -> None:
        """Check a name that is given for the first time."""
        if len(self._names) >= _MOST_NAMES:
            return
        self._names[name] = None
        metric = series_of(name) if role_of(name) in _COPIED else None
        if metric is not None and metric not in (name, *self._read_as):
            self._read_as[metric] = name
            log.info("%s is recorded as %s too, which rules read", name, metric)
        signs = [] if self.has_moving_target else signs_of(self._names)
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
    """`float(value)`, also for an array with one element: numpy's own requires zero dimensions."""
    if isinstance(value, np.ndarray):
        return float(cast("NDArray[Any]", value).item())
    return float(value)


def as_count(value: SupportsFloat) -> float:
    """A count as a float. Raises ValueError if it is not finite."""
    count = as_float(value)
    if not math.isfinite(count):
        raise ValueError(f"it is {count}")
    return count
