"""Deep copies of what a state holds beside containers and tensors, without the training itself.

A scheduler may hold another scheduler, and that one its optimizer; an optimizer's group may name
the module that it steps. If these were copied as well, a schedule would move the learning rate of
a copy after a rollback.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

_Value = TypeVar("_Value")

Living = Callable[[], Iterable[object]]
"""Returns the objects of the training, which stay the same in every copy."""

_UNCHANGING: Final = (bool, int, float, complex, str, bytes, type(None))


class OwnCopies:
    """The deep copies of one capture or restore. An object that occurs twice is copied once."""

    def __init__(self, living: Living) -> None:
        self._living = living
        self._memo: dict[int, object] = {}

    def copy(self, value: _Value) -> _Value:
        if isinstance(value, _UNCHANGING):
            return value
        if not self._memo:  # only now, because most states hold no such value
            self._memo = {id(one): one for one in self._living()}
        return copy.deepcopy(value, self._memo)
