"""Frames in a pack come back with every bit; what is damaged is a gap."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from runwatch.frames import Event, Frame
from runwatch.nonfinite import ABSENT_64
from runwatch.vocabulary import RunId
from runwatch_server.telemetry.gaps import GapReason
from runwatch_server.telemetry.packs.contents import TILE_COLUMNS, TILE_ROWS, Contents, Kind
from runwatch_server.telemetry.packs.encoding import FrameToPack, encode_pack
from runwatch_server.telemetry.packs.queries import PackRow
from runwatch_server.telemetry.packs.unpacking import (
    Place,
    Table,
    holds,
    parts_of,
    rows_of,
    unpack_frames,
    widened,
)

MANY = TILE_COLUMNS + 3


def any_bits(rng: np.random.Generator, rows: int, columns: int) -> NDArray[np.float32]:
    """Float32 of whatever bits: NaNs with payloads, infinities, 'not recorded', denormals."""
    return rng.integers(0, 2**32, (rows, columns), np.uint32).view(np.float32)


def made(seq: int, num_steps: int, num_columns: int, num_metrics: int, seed: int) -> Frame:
    rng = np.random.default_rng([seed, seq])
    bits = rng.integers(0, 2**64, (num_steps, num_metrics), np.uint64).view(np.float64)
    has_stats = bool(num_steps and num_columns)
    events = (Event(step=seq, kind="note", at=1.0, detail={"x": "y"}),)
    return Frame(
        attempt=3,
        rank=1,
        seq=seq,
        segment=2,
        first_step=10 * seq,
        times=rng.normal(size=num_steps),
        metric_names=tuple(f"m{number}" for number in range(num_metrics)),
        metrics=bits,
        layout_hash=f"{num_columns:064d}" if has_stats else "",
        stats=any_bits(rng, num_steps, num_columns if has_stats else 0),
        events=events if num_steps == 0 or rng.random() < 0.3 else (),
    )


def packed(frames: list[Frame]) -> tuple[PackRow, bytes]:
    stored = [FrameToPack(frame, frame.seq * 7, frame.seq % 2 == 0, 0.5) for frame in frames]
    octets, contents = encode_pack(stored)
    row = PackRow(
        run_id=RunId("run"),
        attempt=3,
        rank=1,
        first_seq=frames[0].seq,
        last_seq=frames[-1].seq,
        segment=2,
        first_step=min(frame.first_step for frame in frames),
        last_step=max(frame.last_step for frame in frames),
        object="run/x.pack",
        num_bytes=len(octets),
        digest="",
        packed_at=0.0,
        contents=contents.encode(),
    )
    return row, octets


def bits_of(frame: Frame) -> tuple[object, ...]:
    numbers = (frame.times, frame.metrics, frame.stats)
    return (
        *(getattr(frame, name) for name in ("attempt", "rank", "seq", "segment", "first_step")),
        *(frame.metric_names, frame.layout_hash, frame.events),
        *((array.shape if array.size else None, array.tobytes()) for array in numbers),
    )


shapes = st.tuples(
    st.sampled_from([0, 1, 5, TILE_ROWS, TILE_ROWS + 1]),
    st.sampled_from([0, 2, MANY]),
    st.sampled_from([0, 1, 3]),
)


@settings(max_examples=20)
@given(st.lists(shapes, min_size=1, max_size=4), st.integers(0, 2**31))
def test_frames_come_back_with_every_bit(drawn: list[tuple[int, int, int]], seed: int) -> None:
    frames = [made(seq, *shape, seed) for seq, shape in enumerate(drawn, start=5)]
    pack, octets = packed(frames)

    found = unpack_frames(pack, range(len(frames)), octets)

    assert found.gaps == []
    assert [bits_of(one.frame) for one in found.items] == [bits_of(frame) for frame in frames]
    assert [one.late for one in found.items] == [frame.seq % 2 == 0 for frame in frames]


def test_a_pack_that_gives_another_bit_back_does_not_hold_its_frames() -> None:
    frames = [made(seq, 5, 2, 1, seed=1) for seq in (5, 6)]
    pack, octets = packed(frames)
    stats = frames[1].stats.copy()
    stats.view(np.uint32)[3, 1] ^= 1

    assert holds(pack, octets, frames)
    assert not holds(pack, octets, [frames[0], replace(frames[1], stats=stats)])
    assert not holds(pack, octets[:-1] + b"?", frames)


def column_of(pack: PackRow, octets: bytes, column: int) -> tuple[list[object], list[object]]:
    table = Table(
        0, rows_of(pack.directory, 0, 0, 10**6), Place(Kind.STATS, range(column, column + 1))
    )
    tiles = table.tiles(pack.directory)
    table.put_all(tiles, [octets[tile.start : tile.end] for tile in tiles])
    found = parts_of(pack, table, 0, 10**6)
    return [part.values[:, 0].tobytes() for part in found.items], list(found.gaps)


def test_a_column_is_read_from_its_own_tiles_alone() -> None:
    frames = [replace(made(seq, 600, MANY, 1, 9), first_step=600 * seq) for seq in (1, 2, 3)]
    pack, octets = packed(frames)
    table = Table(0, range(600, 1200), Place(Kind.STATS, range(MANY - 1, MANY)))

    values, gaps = column_of(pack, octets, MANY - 1)

    assert gaps == []
    assert values == [widened(frame.stats[:, -1]).tobytes() for frame in frames]
    assert [(tile.first_row, tile.first_column) for tile in table.tiles(pack.directory)] == [
        (0, TILE_COLUMNS),
        (TILE_ROWS, TILE_COLUMNS),
    ]


@pytest.mark.parametrize("cut", [False, True], ids=["a bit turned", "cut short"])
def test_a_damaged_tile_is_a_gap_of_its_rows_and_no_others(cut: bool) -> None:
    frames = [replace(made(seq, 600, MANY, 1, 9), first_step=600 * seq) for seq in (1, 2, 3)]
    pack, octets = packed(frames)
    table = Table(0, range(1800), Place(Kind.STATS, range(MANY - 1, MANY)))
    tile = table.tiles(pack.directory)[1]
    damaged = bytearray(octets)
    damaged[tile.start + 20] ^= 1
    broken = octets[: tile.start + 20] if cut else bytes(damaged)

    values, gaps = column_of(pack, broken, MANY - 1)

    # Rows 1024 and on are in the second tile: of the second frame from its row 424 on.
    whole = frames[0].stats[:, -1], frames[1].stats[:424, -1]
    assert values == [widened(part).tobytes() for part in whole]
    assert gaps == [
        pack.gap(1200 + 424, 1799, GapReason.CORRUPT),
        pack.gap(1800, 2399, GapReason.CORRUPT),
    ]
    whole_frames = unpack_frames(pack, range(3), broken)
    # What was cut off holds the events of all frames: none of them is whole without.
    assert [one.frame.seq for one in whole_frames.items] == ([] if cut else [1])
    assert {gap.reason for gap in whole_frames.gaps} == {GapReason.CORRUPT}


def test_contents_are_read_as_they_were_written() -> None:
    pack, _ = packed([made(1, 3, 2, 1, 0), made(2, 0, 0, 0, 0)])

    contents = Contents.decode(pack.contents)

    assert contents.encode() == pack.contents
    assert (contents.first_seq, contents.last_seq) == (1, 2)
    assert [frame.checksum for frame in contents.frames] == [7, 14]


def test_what_was_not_recorded_stays_so_in_a_column() -> None:
    frame = made(1, 4, 2, 0, 3)
    frame.stats[2, 1] = np.uint32(0x7FC04E52).view(np.float32)
    pack, octets = packed([frame])

    ((values,), _) = column_of(pack, octets, 1)

    assert isinstance(values, bytes)
    assert values[16:24] == ABSENT_64.tobytes()
