"""An evaluator's memory as bytes, and back, to the last bit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from runwatch.rules.inhibition import InhibitionMemory
from runwatch.rules.layer_families import FamiliesMemory
from runwatch.rules.standing import StandingMemory
from runwatch.rules.windows import History

_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What an evaluator remembers between rows."""

    attempt: int | None
    segment: int
    rank: int
    layers: tuple[str, ...]
    stamps: tuple[tuple[int, float], ...]
    """Step and time of the latest rows."""
    histories: Mapping[str, History]
    """By the text of their keys."""
    standings: Mapping[str, StandingMemory]
    """By the hash of their rules."""
    incidents: InhibitionMemory = field(default_factory=InhibitionMemory)
    known: Mapping[str, float] = field(default_factory=dict[str, float])
    """Beside the rows."""
    latest: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    """The last values of series that the next attempt will want to know."""
    families: FamiliesMemory = ()


class _SavedHistory(msgspec.Struct, frozen=True):
    num_columns: int
    depth: int
    values: bytes
    """(L, D) float64, little endian"""
    steps: bytes
    """(L, D) int64, little endian"""


class _Saved(msgspec.Struct, frozen=True):
    version: int
    attempt: int | None
    segment: int
    rank: int
    layers: tuple[str, ...]
    stamps: tuple[tuple[int, float], ...]
    histories: dict[str, _SavedHistory]
    standings: dict[str, StandingMemory]
    incidents: InhibitionMemory = msgspec.field(default_factory=InhibitionMemory)
    """Absent from states that were saved before alerts could be inhibited; so are the others."""
    known: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    latest: dict[str, list[float]] = msgspec.field(default_factory=dict[str, list[float]])
    families: FamiliesMemory = ()


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Saved)


def dump(memory: Memory) -> bytes:
    return _encoder.encode(
        _Saved(
            version=_VERSION,
            attempt=memory.attempt,
            segment=memory.segment,
            rank=memory.rank,
            layers=memory.layers,
            stamps=memory.stamps,
            histories={key: _dump_history(kept) for key, kept in sorted(memory.histories.items())},
            standings=dict(memory.standings),
            incidents=memory.incidents,
            known=dict(memory.known),
            latest={name: list(values) for name, values in memory.latest.items()},
            families=memory.families,
        )
    )


def load(state: bytes) -> Memory:
    """The memory that `dump` wrote. Raises ValueError for anything else."""
    try:
        saved = _decoder.decode(state)
    except msgspec.DecodeError as error:
        raise ValueError(f"evaluator state: {error}") from error
    if saved.version != _VERSION:
        raise ValueError(f"evaluator state: found version {saved.version}, wanted {_VERSION}")
    return Memory(
        attempt=saved.attempt,
        segment=saved.segment,
        rank=saved.rank,
        layers=saved.layers,
        stamps=saved.stamps,
        histories={key: _load_history(kept) for key, kept in saved.histories.items()},
        standings=saved.standings,
        incidents=saved.incidents,
        known=saved.known,
        latest=saved.latest,
        families=saved.families,
    )


def _dump_history(history: History) -> _SavedHistory:
    values_LD, steps_LD = history.kept()
    return _SavedHistory(
        num_columns=values_LD.shape[0],
        depth=values_LD.shape[1],
        values=values_LD.astype("<f8").tobytes(),
        steps=steps_LD.astype("<i8").tobytes(),
    )


def _load_history(saved: _SavedHistory) -> History:
    shape = (saved.num_columns, saved.depth)
    values_LD = np.frombuffer(saved.values, "<f8").reshape(shape)
    steps_LD = np.frombuffer(saved.steps, "<i8").reshape(shape)
    return History.of(values_LD.astype(np.float64), steps_LD.astype(np.int64))
