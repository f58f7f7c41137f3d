"""What stands in the ranks' store about each round, which is one command."""

from itertools import count, product, takewhile
from typing import Final, TypeVar

import msgspec

from runwatch_hooks.ranks import RankStore
from runwatch_hooks.transport.texts import sendable_document

_Ballot = TypeVar("_Ballot")

_KEPT_ROUNDS: Final = 8
"""A rank that was held up may still be reading an earlier round than the one that is opened."""


class Ledger:
    """Every method raises StoreLostError where the store is gone."""

    def __init__(self, store: RankStore, world_size: int) -> None:
        self._store = store
        self._world_size = world_size

    def find(self, place: str, ballot: type[_Ballot]) -> _Ballot | None:
        """What was written there, if anything was."""
        written = self._store.get(place)
        return None if written is None else msgspec.json.decode(written, type=ballot)

    def put(self, place: str, ballot: object) -> None:
        """For a place that one rank alone writes to."""
        self._store.put(place, _encoded(ballot))

    def settle(self, place: str, ballot: _Ballot) -> _Ballot:
        """What stands there for good: the first that anybody wrote."""
        first = self._store.decide(place, _encoded(ballot).decode())
        return msgspec.json.decode(first, type=type(ballot))

    def count(self, place: str) -> int:
        """How many have counted themselves here, this rank included."""
        return self._store.count(place)

    def all_of(self, place: str, ballot: type[_Ballot]) -> list[_Ballot]:
        """One of each rank, below a place; shorter where one is missing."""
        found = [self.find(f"{place}/{rank}", ballot) for rank in range(self._world_size)]
        return [one for one in found if one is not None]

    def forget(self, round_number: int) -> None:
        """Clear what each rank wrote in a round that is long over. What was proposed and how it
        ended stays: it is short, and a rank that was held up catches up by it."""
        old = round_number - _KEPT_ROUNDS
        if old <= 0:
            return
        stages = takewhile(lambda stage: self._store.get(f"{old}/trial/{stage}"), count(1))
        places = [f"{old}/promise", *(f"{old}/standing/{stage}" for stage in (0, *stages))]
        for place, rank in product(places, range(self._world_size)):
            self._store.remove(f"{place}/{rank}")


def _encoded(ballot: object) -> bytes:
    """A refusal may name a file with an odd byte."""
    return msgspec.json.encode(sendable_document(msgspec.to_builtins(ballot)))
