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
        self._entries: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def taken(self) -> int:
        """The sum of the sizes of all entries."""
        return self._taken

    def get(self, key: _Key) -> _Value | None:
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def values(self) -> list[_Value]:
        """All values, the least recently used first."""
        return [value for value, _ in self._entries.values()]

    def put(self, key: _Key, value: _Value, size: int) -> None:
        """Add a new entry, and drop the least recently used ones beyond the limit."""
        self._entries[key] = value, size
        self._taken += size
        while self._taken > self._room and len(self._entries) > 1:
            _, (_, size_dropped) = self._entries.popitem(last=False)
            self._taken -= size_dropped


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """The device memory that tensors take, in whole blocks of the allocator."""
    return sum(-(-one.nbytes // _BLOCK_BYTES) * _BLOCK_BYTES for one in tensors)
