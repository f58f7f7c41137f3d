"""Names of metrics that the hook records itself; a user's metric of the same name is renamed."""

from collections.abc import Iterable, Mapping

from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.seeing.numbers import Number

log = OwnLog(__name__)

PREFIX = "user/"
"""Prefix for the name of a user's metric where the hook records one of that name itself."""


class ReservedNames:
    """The names under which the hook has recorded metrics in this run.

    Where a user's metric has such a name, both are kept: rules rely on the meaning of the hook's
    (`step_time` is in seconds, `grad_norm` is measured before clipping), and the user's matters to
    the user. A name that the hook does not record in this run, such as `loss_scale` without a
    scaler, is the user's.
    """

    def __init__(self) -> None:
        self._ours: set[str] = set()
        self._renamed: set[str] = set()
        self._untold: list[str] = []

    def add(self, names: Iterable[str]) -> None:
        """Reserve the names of metrics that the hook records."""
        self._ours.update(names)

    def apart(self, numbers: Mapping[str, Number]) -> dict[str, Number]:
        """The user's metrics, renamed where their names are reserved."""
        if self._ours.isdisjoint(numbers):
            return dict(numbers)
        return {self._other(name): value for name, value in numbers.items()}

    def untold(self) -> list[str]:
        """Names of renamed metrics that were not reported yet, each returned once."""
        untold, self._untold = self._untold, []
        return untold

    def _other(self, name: str) -> str:
        if name not in self._ours:
            return name
        if name not in self._renamed:
            self._renamed.add(name)
            self._untold.append(name)
            log.warning(
                "%r is a name that is recorded anyway: yours is stored as %r", name, PREFIX + name
            )
        return PREFIX + name
