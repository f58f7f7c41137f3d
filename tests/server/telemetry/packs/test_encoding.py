"""Frames in a pack come back with every bit; what is damaged is a gap."""

import hashlib
import tracemalloc
import zlib
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from runwatch import zstd
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


BOMB_BYTES = 2**27


def bomb() -> bytes:
    """A frame of Zstandard of 4 KiB, which unpacks to 128 MiB of zeros."""
    block = 2**17
    is_last = [0] * (BOMB_BYTES // block - 1) + [1]
    blocks = [(block << 3 | 1 << 1 | last).to_bytes(3, "little") + b"\0" for last in is_last]
    return zstd.MAGIC + b"\xe0" + BOMB_BYTES.to_bytes(8, "little") + b"".join(blocks)


OTHER_NUMBERS = zstd.compress(bytes(TILE_ROWS * (MANY - TILE_COLUMNS) * Kind.STATS))


def mended(octets: bytes, length: int, crc32: int) -> bytes:
    """The frame, and after it as many bytes as a tile had and its CRC-32 needs: CRC-32 is linear,
    so that 4 free bytes give any."""
    num_free = length - len(octets) - 8
    octets += b"\x50\x2a\x4d\x18" + num_free.to_bytes(4, "little") + bytes(num_free - 4)
    plain = zlib.crc32(octets + bytes(4))
    by_height: dict[int, tuple[int, int]] = {}
    for bit in range(32):
        mask = 1 << bit
        change = zlib.crc32(octets + mask.to_bytes(4, "little")) ^ plain
        while change.bit_length() in by_height:
            other, bits = by_height[change.bit_length()]
            change, mask = change ^ other, mask ^ bits
        by_height[change.bit_length()] = change, mask
    wrong, patch = plain ^ crc32, 0
    while wrong:
        change, bits = by_height[wrong.bit_length()]
        wrong, patch = wrong ^ change, patch ^ bits
    return octets + patch.to_bytes(4, "little")


@pytest.mark.parametrize("forged", [OTHER_NUMBERS, bomb()], ids=["other numbers", "a bomb"])
def test_a_tile_that_somebody_wrote_to_the_same_crc_is_a_gap(forged: bytes) -> None:
    frames = [replace(made(1, TILE_ROWS, MANY, 1, 9), first_step=0)]
    pack, octets = packed(frames)
    (tile,) = Table(0, range(TILE_ROWS), Place(Kind.STATS, range(MANY - 1, MANY))).tiles(
        pack.directory
    )
    was = octets[tile.start : tile.end]
    written = mended(forged, len(was), zlib.crc32(was))
    assert (len(written), zlib.crc32(written)) == (len(was), zlib.crc32(was))

    tracemalloc.start()
    found = column_of(pack, octets[: tile.start] + written + octets[tile.end :], MANY - 1)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert found == ([], [pack.gap(0, TILE_ROWS - 1, GapReason.CORRUPT)])
    assert peak_bytes < BOMB_BYTES / 32


@pytest.mark.parametrize("at", [0, -1], ids=["a tile", "the events"])
@pytest.mark.parametrize(
    "written",
    [bomb(), zstd.compress(bytes(8)), b"no Zstandard"],
    ids=["too large", "too small", "no Zstandard"],
)
def test_what_has_another_size_than_the_index_says_is_not_unpacked(written: bytes, at: int) -> None:
    """Even with the digest of the index: a copy of the database may be somebody else's."""
    pack, octets = packed([made(5, 10, 2, 1, seed=1), made(6, 0, 0, 0, seed=1)])
    contents = Contents.decode(pack.contents)
    sizes, digests = list(contents.tile_bytes), list(contents.tile_digests)
    place = slice(sum(sizes[:at]) + 4, None) if at else slice(4, sizes[0] + 4)
    end = octets[place.stop :] if place.stop else b""
    sizes[at], digests[at] = len(written), hashlib.sha256(written).digest()
    changed = msgspec.structs.replace(
        contents, tile_bytes=tuple(sizes), tile_digests=tuple(digests)
    )

    tracemalloc.start()
    found = unpack_frames(
        replace(pack, contents=changed.encode()), range(1), octets[: place.start] + written + end
    )
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [gap.reason for gap in found.gaps] == [GapReason.CORRUPT]
    assert peak_bytes < BOMB_BYTES / 32


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
