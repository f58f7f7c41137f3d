"""Before the first step, where ranks may wait for one another: what they all have in common."""

from collections.abc import Iterable
from typing import Final

import msgspec

from runwatch_hooks.ranks import RankStore

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

    def all_did(self, did: bool) -> bool:
        """Whether every rank did."""
        return all(one == [1] for one in self._gather([int(did)]))

    def _gather(self, numbers: list[int]) -> list[list[int]]:
        self._number += 1
        self._store.put(f"{self._number}/{self._rank}", msgspec.json.encode(numbers))
        return [
            msgspec.json.decode(
                self._store.wait(f"{self._number}/{rank}", self._patience_s), type=list[int]
            )
            for rank in range(self._world_size)
        ]
