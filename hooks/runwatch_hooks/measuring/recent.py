"""A cache of recently used values, bounded by size."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from torch import Tensor

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_BLOCK_BYTES: Final = 512
"""The smallest block of an accelerator's allocator."""


class Recent(Generic[_Key, _Value]):
    """Drops the least recently used entries, but never the newest, however large it is."""

    def __init__(self, room: int) -> None:
        """`room` is the limit on the sum of sizes given to `put`, usually bytes."""
        self._room = room
        self._taken = 0
        self._held: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def taken(self) -> int:
        """The sum of the sizes of all entries."""
        return self._taken

    def get(self, key: _Key) -> _Value | None:
        found = self._held.get(key)
        if found is None:
            return None
        self._held.move_to_end(key)
        return found[0]

    def values(self) -> list[_Value]:
        """All values, the least recently used first."""
        return [value for value, _ in self._held.values()]

    def put(self, key: _Key, value: _Value, size: int) -> None:
        """Add a new entry, and drop the least recently used ones beyond the limit."""
        self._held[key] = value, size
        self._taken += size
        while self._taken > self._room and len(self._held) > 1:
            _, (_, given_up) = self._held.popitem(last=False)
            self._taken -= given_up


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """The device memory that tensors take, in whole blocks of the allocator."""
    return sum(-(-one.nbytes // _BLOCK_BYTES) * _BLOCK_BYTES for one in tensors)
