"""What was used last, as much of it as there is room for."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from torch import Tensor

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_BLOCK_BYTES: Final = 512
"""The least that an accelerator's allocator gives."""


class Recent(Generic[_Key, _Value]):
    """Forgets what has not been used for longest; never the newest, however large that is."""

    def __init__(self, room: int) -> None:
        """`room` is in whatever `put` counts by: bytes, mostly."""
        self._room = room
        self._taken = 0
        self._held: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def taken(self) -> int:
        """Of the room."""
        return self._taken

    def get(self, key: _Key) -> _Value | None:
        found = self._held.get(key)
        if found is None:
            return None
        self._held.move_to_end(key)
        return found[0]

    def values(self) -> list[_Value]:
        """From the one that was used longest ago on."""
        return [value for value, _ in self._held.values()]

    def put(self, key: _Key, value: _Value, size: int) -> None:
        """Keep what was not there, in place of what was used longest ago."""
        self._held[key] = value, size
        self._taken += size
        while self._taken > self._room and len(self._held) > 1:
            _, (_, given_up) = self._held.popitem(last=False)
            self._taken -= given_up


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """What tensors take of a device's memory."""
    return sum(-(-one.nbytes // _BLOCK_BYTES) * _BLOCK_BYTES for one in tensors)
