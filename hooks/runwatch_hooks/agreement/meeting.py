"""Before the first step, where ranks may wait for one another: what they all have in common."""

from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from runwatch_hooks.ranks import RankStore

_Told = TypeVar("_Told", int, str)

PATIENCE_S: Final = 120.0
"""For the slowest rank to come as far; it may still be making its model."""


class Meeting:
    """Each rank must ask the same questions in the same order. Raises StoreError."""

    def __init__(
        self, store: RankStore, *, rank: int, world_size: int, patience_s: float = PATIENCE_S
    ) -> None:
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._patience_s = patience_s
        self._number = 0

    def common(self, steps: Iterable[int]) -> int | None:
        """The newest of the steps that every rank has named."""
        ours, *others = self._gather(sorted(set(steps)))
        return max(set(ours).intersection(*others), default=None)

    def all_took_one(self, name: str | None) -> bool:
        """Whether every rank took something, and all the same, by its name."""
        names = self._gather([] if name is None else [name])
        return names[0] != [] and all(one == names[0] for one in names)

    def _gather(self, told: list[_Told]) -> list[list[_Told]]:
        self._number += 1
        self._store.put(f"{self._number}/{self._rank}", msgspec.json.encode(told))
        return [
            msgspec.json.decode(self._store.wait(f"{self._number}/{rank}", self._patience_s))
            for rank in range(self._world_size)
        ]
