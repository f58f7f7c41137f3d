"""Finds what all ranks have in common, before the first step, when ranks may wait for each
other."""

from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from runwatch_hooks.ranks import RankStore

_Told = TypeVar("_Told", int, str)

PATIENCE_S: Final = 120.0
"""How long to wait for the slowest rank, which may still be building its model."""


class Meeting:
    """All ranks must call the same methods in the same order. Raises StoreError."""

    def __init__(
        self, store: RankStore, *, rank: int, world_size: int, patience_s: float = PATIENCE_S
    ) -> None:
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._patience_s = patience_s
        self._number = 0

    def common(self, steps: Iterable[int]) -> int | None:
        """The newest step that every rank has given; None if there is none."""
        ours, *others = self._gather(sorted(set(steps)))
        return max(set(ours).intersection(*others), default=None)

    def all_took_one(self, name: str | None) -> bool:
        """Whether all ranks give the same name, and none gives None."""
        names = self._gather([] if name is None else [name])
        return names[0] != [] and all(one == names[0] for one in names)

    def _gather(self, told: list[_Told]) -> list[list[_Told]]:
        self._number += 1
        self._store.put(f"{self._number}/{self._rank}", msgspec.json.encode(told))
        return [
            msgspec.json.decode(self._store.wait(f"{self._number}/{rank}", self._patience_s))
            for rank in range(self._world_size)
        ]
