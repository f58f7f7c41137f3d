"""The protocol's messages in the ranks' store. A round is one command."""

from itertools import count, product, takewhile
from typing import Final, TypeVar

import msgspec

from runwatch_hooks.ranks import RankStore
from runwatch_hooks.transport.texts import sendable_document

_Ballot = TypeVar("_Ballot")

_KEPT_ROUNDS: Final = 8
"""Rounds that are kept: a slow rank may still be reading an earlier one."""


class Ledger:
    """Reads and writes messages. Every method raises StoreLostError if the store is gone."""

    def __init__(self, store: RankStore, world_size: int) -> None:
        self._store = store
        self._world_size = world_size

    def find(self, place: str, ballot: type[_Ballot]) -> _Ballot | None:
        """The message at a place; None if there is none."""
        written = self._store.get(place)
        return None if written is None else msgspec.json.decode(written, type=ballot)

    def put(self, place: str, ballot: object) -> None:
        """Write to a place that only this rank writes to."""
        self._store.put(place, _encoded(ballot))

    def settle(self, place: str, ballot: _Ballot) -> _Ballot:
        """Write to a place unless another rank was first; returns the first message there."""
        first = self._store.decide(place, _encoded(ballot).decode())
        return msgspec.json.decode(first, type=type(ballot))

    def count(self, place: str) -> int:
        """Add this rank to a count; returns how many ranks have been counted."""
        return self._store.count(place)

    def all_of(self, place: str, ballot: type[_Ballot]) -> list[_Ballot]:
        """The messages of all ranks below a place; missing ones are left out."""
        found = [self.find(f"{place}/{rank}", ballot) for rank in range(self._world_size)]
        return [one for one in found if one is not None]

    def forget(self, round_number: int) -> None:
        """Remove what each rank wrote in a round that ended long ago. Proposal, decision and
        verdict stay: they are short, and a slow rank needs them to catch up."""
        old = round_number - _KEPT_ROUNDS
        if old <= 0:
            return
        stages = takewhile(lambda stage: self._store.get(f"{old}/trial/{stage}"), count(1))
        places = [f"{old}/promise", *(f"{old}/standing/{stage}" for stage in (0, *stages))]
        for place, rank in product(places, range(self._world_size)):
            self._store.remove(f"{place}/{rank}")


def _encoded(ballot: object) -> bytes:
    """The message as JSON. Its texts are made encodable, as a refusal may name a file with an
    invalid byte."""
    return msgspec.json.encode(sendable_document(msgspec.to_builtins(ballot)))
