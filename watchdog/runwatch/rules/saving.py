"""An evaluator's memory as bytes, and back, to the last bit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
import numpy as np

from runwatch import zstd
from runwatch.rules.inhibition import InhibitionMemory
from runwatch.rules.layer_families import FamiliesMemory
from runwatch.rules.named_layers import NamedMemory
from runwatch.rules.objectives import Stage
from runwatch.rules.recorded_names import NamesMemory
from runwatch.rules.standing import StandingMemory
from runwatch.rules.unplaced_events import UnplacedMemory
from runwatch.rules.windows import History

_VERSION: Final = 2
_READABLE: Final = (1, 2)
"""Of the first all values are float64, each column has steps of its own, and none is compressed."""


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
    objectives: Mapping[str, Stage] = field(default_factory=dict[str, Stage])
    """By the names of their numbers."""
    unplaced: UnplacedMemory = (0, {})
    named: NamedMemory = (0, ())
    names: NamesMemory = ((), {})


class _SavedHistory(msgspec.Struct, frozen=True):
    num_columns: int
    depth: int
    values: bytes
    """(L, D) numbers, little endian"""
    steps: bytes
    """(L, D) int64, little endian; or (1, D), where all columns have the same."""
    value_bytes: int = 8


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
    objectives: dict[str, Stage] = msgspec.field(default_factory=dict[str, Stage])
    unplaced: tuple[int, dict[str, int]] = (0, {})
    named: NamedMemory = (0, ())
    names: tuple[tuple[str, ...], dict[str, str]] = ((), {})


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Saved)


def dump(memory: Memory) -> bytes:
    state = _encoder.encode(
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
            objectives=dict(memory.objectives),
            unplaced=(memory.unplaced[0], dict(memory.unplaced[1])),
            named=memory.named,
            names=(memory.names[0], dict(memory.names[1])),
        )
    )
    return zstd.compress(state)


def load(state: bytes) -> Memory:
    """The memory that `dump` wrote. Raises ValueError for anything else."""
    try:
        if state.startswith(zstd.MAGIC):
            state = zstd.decompress(state)
        saved = _decoder.decode(state)
    except (msgspec.DecodeError, zstd.ZstdError) as error:
        raise ValueError(f"evaluator state: {error}") from error
    if saved.version not in _READABLE:
        raise ValueError(f"evaluator state: found version {saved.version}, wanted {_READABLE}")
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
        objectives=saved.objectives,
        unplaced=saved.unplaced,
        named=saved.named,
        names=saved.names,
    )


def with_hashes(state: bytes, hashes: Mapping[str, str]) -> bytes:
    """The state for rules whose hashes have changed, though not what they judge: `hashes` gives the
    new ones by the old. Raises ValueError as `load` does."""
    memory = load(state)
    standings = {hashes.get(old, old): standing for old, standing in memory.standings.items()}
    return dump(replace(memory, standings=standings))


def _dump_history(history: History) -> _SavedHistory:
    values_LD, steps_XD = history.kept()
    return _SavedHistory(
        num_columns=values_LD.shape[0],
        depth=values_LD.shape[1],
        values=values_LD.astype(f"<f{values_LD.itemsize}", copy=False).tobytes(),
        steps=steps_XD.astype("<i8", copy=False).tobytes(),
        value_bytes=values_LD.itemsize,
    )


def _load_history(saved: _SavedHistory) -> History:
    values = np.frombuffer(saved.values, f"<f{saved.value_bytes}")
    steps = np.frombuffer(saved.steps, "<i8")
    values_LD = values.astype(f"=f{saved.value_bytes}").reshape(saved.num_columns, saved.depth)
    return History.of(values_LD, steps.astype(np.int64).reshape(-1, saved.depth))
