"""Which numbers' names are ours, and what becomes of a user's number of such a name."""

from collections.abc import Iterable, Mapping

from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.seeing.numbers import Number

log = OwnLog(__name__)

PREFIX = "user/"
"""Stands before the name of a user's number where we record one of that name ourselves."""
OF_LAYERS = ("grad_norm", "layers_with_grad", "nonfinite", "param_norm")
"""Numbers of ours that are made of the layers' stats."""


class OwnNames:
    """The names under which we have recorded numbers of this run.

    Both numbers are kept: rules rely on what ours mean (`step_time` is in seconds, `grad_norm` is
    from before the clip), and the user's is worth as much to the user. A name that we never record
    in this run, such as `loss_scale` without a scaler, is the user's.
    """

    def __init__(self) -> None:
        self._ours: set[str] = set()
        self._renamed: set[str] = set()
        self._untold: list[str] = []

    def add(self, names: Iterable[str]) -> None:
        """We record these."""
        self._ours.update(names)

    def apart(self, numbers: Mapping[str, Number]) -> dict[str, Number]:
        """The user's numbers, under names that are not ours."""
        if self._ours.isdisjoint(numbers):
            return dict(numbers)
        return {self._other(name): value for name, value in numbers.items()}

    def untold(self) -> list[str]:
        """Names that were changed and not told of, each once."""
        untold, self._untold = self._untold, []
        return untold

    def _other(self, name: str) -> str:
        if name not in self._ours:
            return name
        if name not in self._renamed:
            self._renamed.add(name)
            self._untold.append(name)
            log.warning("%r is a name of ours: yours is kept as %r", name, PREFIX + name)
        return PREFIX + name
