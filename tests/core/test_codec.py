"""What goes into a frame's bytes comes out again, and what is broken is refused with a word."""

import struct
import zlib

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from runwatch import zstd
from runwatch.codec import (
    MAX_BLOCK_BYTES,
    MAX_BODY_BYTES,
    FrameHeader,
    decode_frame,
    decode_metrics,
    encode_frame,
    join_frame,
    split_frame,
)
from runwatch.errors import ChecksumError, FrameError, FrameTooLargeError
from runwatch.frames import Event, Frame
from runwatch.nonfinite import ABSENT_32, ABSENT_64, is_absent


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    num_steps = draw(st.integers(0, 5))
    num_metrics, num_columns = draw(st.integers(0, 3)), draw(st.integers(0, 6))
    times = st.floats(0, 4e9)
    events = draw(st.lists(st.builds(Event, st.integers(0, 99), st.text(), times), max_size=2))
    if num_steps == 0 and not events:
        events = [Event(step=0, kind="phase", at=0.0)]
    metrics = draw(hnp.arrays(np.float64, (num_steps, num_metrics)))
    stats = draw(hnp.arrays(np.float32, (num_steps, num_columns)))
    return Frame(
        attempt=draw(st.integers(0, 9)),
        rank=draw(st.integers(0, 9)),
        seq=draw(st.integers(1, 2**53)),
        segment=draw(st.integers(0, 9)),
        first_step=draw(st.integers(0, 2**53)),
        times=draw(hnp.arrays(np.float64, num_steps, elements=times)),
        metric_names=tuple(f"metric {index}" for index in range(num_metrics)),
        metrics=metrics,
        layout_hash="f00d" if stats.size else "",
        stats=stats,
        events=tuple(events),
    )


def a_frame(stats: np.ndarray[tuple[int, int], np.dtype[np.float32]] | None = None) -> Frame:
    rows = np.ones((2, 3), np.float32) if stats is None else stats
    return Frame(
        attempt=1,
        rank=0,
        seq=1,
        segment=0,
        first_step=0,
        times=np.arange(len(rows), dtype=np.float64),
        metric_names=("loss",),
        metrics=np.full((len(rows), 1), np.nan),
        layout_hash="f00d",
        stats=rows,
    )


@given(frames())
def test_a_frame_survives_the_journey_to_the_bit(frame: Frame) -> None:
    arrived = decode_frame(encode_frame(frame))

    assert arrived.times.tobytes() == frame.times.tobytes()
    assert arrived.metrics.tobytes() == frame.metrics.tobytes()
    assert arrived.stats.tobytes() == frame.stats.tobytes()
    for fact in ("attempt", "rank", "seq", "segment", "first_step", "layout_hash", "events"):
        assert getattr(arrived, fact) == getattr(frame, fact)
    assert arrived.metric_names == frame.metric_names


def test_not_recorded_is_neither_zero_nor_nan_on_the_other_side() -> None:
    stats = np.array([[np.nan, ABSENT_32, 0.0, np.inf]], np.float32)
    frame = a_frame(stats)
    frame.metrics[0, 0] = ABSENT_64

    arrived = decode_frame(encode_frame(frame))

    assert is_absent(arrived.stats).tolist() == [[False, True, False, False]]
    assert is_absent(arrived.metrics).tolist() == [[True]]


def test_the_attempt_can_be_filled_in_without_unpacking() -> None:
    header, block = split_frame(encode_frame(a_frame()))

    sent = join_frame(msgspec.structs.replace(header, attempt=7), block)

    assert decode_frame(sent).attempt == 7


@given(st.binary(max_size=64))
def test_garbage_is_refused_as_a_frame_error(body: bytes) -> None:
    with pytest.raises(FrameError):
        decode_frame(b"RWF1" + body)


def test_every_flipped_byte_is_noticed() -> None:
    body = encode_frame(a_frame())
    original = decode_frame(body)
    for position in range(len(body)):
        broken = bytearray(body)
        broken[position] ^= 0x01
        try:
            arrived = decode_frame(bytes(broken))
        except FrameError:
            continue
        # Only the header's own facts can differ unnoticed; the numbers never.
        assert arrived.stats.tobytes() == original.stats.tobytes()


def test_a_changed_block_fails_its_checksum() -> None:
    body = bytearray(encode_frame(a_frame()))
    body[-1] ^= 0xFF

    with pytest.raises(ChecksumError, match="crc32: found 0x"):
        decode_frame(bytes(body))


def test_a_block_that_unpacks_to_more_than_it_says_is_refused_before_unpacking() -> None:
    header, _ = split_frame(encode_frame(a_frame()))
    bomb = zstd.compress(bytes(2**26))
    body = join_frame(msgspec.structs.replace(header, crc32=zlib.crc32(bomb)), bomb)

    with pytest.raises(FrameTooLargeError, match="67108864 bytes declared by zstd"):
        decode_frame(body)


def test_a_block_that_does_not_say_its_size_is_refused() -> None:
    header, _ = split_frame(encode_frame(a_frame()))
    block = bytes.fromhex("28b52ffd 0000 450000 10 00 00 01003b0116")  # 56 zeros
    body = join_frame(msgspec.structs.replace(header, crc32=zlib.crc32(block)), block)

    with pytest.raises(FrameError, match="found no size declared by zstd, wanted 56 bytes"):
        decode_frame(body)


def test_a_declared_gigabyte_is_refused() -> None:
    header, block = split_frame(encode_frame(a_frame()))
    greedy = msgspec.structs.replace(header, num_columns=2**29)

    with pytest.raises(FrameTooLargeError, match=f"wanted at most {MAX_BLOCK_BYTES}"):
        decode_frame(join_frame(greedy, block))


def test_a_body_over_the_limit_is_refused_unread() -> None:
    with pytest.raises(FrameTooLargeError, match=f"wanted at most {MAX_BODY_BYTES}"):
        split_frame(bytes(MAX_BODY_BYTES + 1))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "found b'' at its start"),
        (b"JSON{}", "found b'JSON' at its start"),
        (b"RWF1\0\0", "found 6 bytes, wanted at least 8"),
        (struct.pack("<4sI", b"RWF1", 2**31), "declared length of 2147483648 bytes"),
        (struct.pack("<4sI", b"RWF1", 1) + b"\x80", "Object missing required field `attempt`"),
    ],
)
def test_a_body_that_is_no_frame_is_refused_with_what_was_found(body: bytes, message: str) -> None:
    with pytest.raises(FrameError, match=message):
        decode_frame(body)


def test_a_negative_count_is_refused() -> None:
    header, block = split_frame(encode_frame(a_frame()))

    with pytest.raises(FrameError, match="num_steps: found -1"):
        decode_frame(join_frame(msgspec.structs.replace(header, num_steps=-1), block))


def test_the_header_names_the_size_of_its_block() -> None:
    header, _ = split_frame(encode_frame(a_frame()))

    assert isinstance(header, FrameHeader)
    assert header.block_bytes == 2 * (8 + 8 + 3 * 4)


@given(frames())
def test_the_metrics_of_a_body_are_read_without_its_stats(frame: Frame) -> None:
    read = decode_metrics(encode_frame(frame))

    assert read.metrics.tobytes() == frame.metrics.tobytes()
    assert read.times.tobytes() == frame.times.tobytes()
    assert read.stats.size == 0
