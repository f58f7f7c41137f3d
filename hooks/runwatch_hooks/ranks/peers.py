"""The batches that rank 0 has read from the other ranks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runwatch_hooks.ranks.letters import BATCH, Batch, batch_key
from runwatch_hooks.ranks.parts import Columns, Part, part_of
from runwatch_hooks.ranks.rank_store import RankStore

Place = tuple[int, int]
"""(segment, step)"""

_MAX_BROKEN: Final = 1024


@dataclass(slots=True)
class _Peer:
    """The state of another rank."""

    next_number: int = 0
    columns: Columns | None = None
    is_awaited: bool = True
    has_left: bool = False


class Peers:
    """All ranks but 0, and their parts of rows that are not complete yet. Used by one thread."""

    def __init__(self, store: RankStore, world_size: int) -> None:
        self._store = store
        self._peers = {rank: _Peer() for rank in range(1, world_size)}
        self._parts: dict[Place, dict[int, Part]] = {}
        self._broken: dict[Place, int] = {}
        """(segment, step) -> the lowest rank whose loss was non-finite."""

    @property
    def have_left(self) -> bool:
        """Whether all ranks that are expected to send a last batch have done so."""
        return all(peer.has_left or not peer.is_awaited for peer in self._peers.values())

    def listen(self) -> list[tuple[int, Batch]]:
        """Read all batches that have arrived, and keep their parts. Returns (rank, batch) of each,
        for their other contents. Raises StoreLostError."""
        found: list[tuple[int, Batch]] = []
        for rank, peer in self._peers.items():
            while (letter := self._store.get(batch_key(rank, peer.next_number))) is not None:
                self._store.remove(batch_key(rank, peer.next_number))
                peer.next_number += 1
                batch = BATCH.decode(letter)
                self._take(rank, peer, batch)
                found.append((rank, batch))
        return found

    def parts_at(self, place: Place) -> Mapping[int, Part]:
        """The parts of a row, by rank."""
        return self._parts.get(place, {})

    def broken_at(self, place: Place) -> int | None:
        """The lowest rank that reported a non-finite loss there; None if none did."""
        return self._broken.get(place)

    def missing(self, owners: Iterable[int], place: Place) -> list[int]:
        """Those of the ranks `owners` whose parts of a step may still arrive."""
        there = self._parts.get(place, {})
        waited_for = [rank for rank in sorted(owners) if rank and rank not in there]
        return [
            rank
            for rank in waited_for
            if self._peers[rank].is_awaited and not self._peers[rank].has_left
        ]

    def give_up(self, ranks: Sequence[int]) -> None:
        """Do not wait for these ranks until they send parts again."""
        for rank in ranks:
            self._peers[rank].is_awaited = False

    def forget(self, place: Place) -> None:
        """Drop the parts of this step and of those before it."""
        for old in [one for one in self._parts if one <= place]:
            del self._parts[old]

    def _take(self, rank: int, peer: _Peer, batch: Batch) -> None:
        peer.is_awaited |= bool(batch.rows)  # ranks without parts send batches too
        peer.has_left = batch.is_last
        peer.columns = batch.columns or peer.columns
        if peer.columns is not None:
            for row in batch.rows:
                place = row.segment, row.step
                self._parts.setdefault(place, {})[rank] = part_of(peer.columns, row)
        for place in batch.broken:
            self._broken[place] = min(rank, self._broken.get(place, rank))
        while len(self._broken) > _MAX_BROKEN:
            del self._broken[next(iter(self._broken))]
