"""Frames as bytes: a msgpack header, then one compressed block of numbers.

    "RWF1" | uint32 length of the header | header (msgpack map) | block

The block holds, little endian, the times (N float64), the metrics (N x M float64) and the stats
(N x C float32). Each of the two number types is byte-shuffled (all first bytes, then all second
bytes, ...: exponents compress, mantissas do not disturb them), then the whole is zstd at level 3:
3.2 bytes a value at 1 % of JSON's time (docs/design.md, section 4.2). The header stays outside
the compression, so that a frame can be routed, and its attempt filled in, without unpacking.
"""

import struct
import zlib
from typing import Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from runwatch import zstd
from runwatch.errors import ChecksumError, FrameError, FrameTooLargeError
from runwatch.frames import MAX_HISTOGRAMS, MAX_METRICS, MAX_STEPS, Event, Frame, check_event_time
from runwatch.histograms import Histograms

CONTENT_TYPE: Final = "application/vnd.runwatch.frame"
MAX_BODY_BYTES: Final = 8 * 2**20
"""Limit before decompression."""
MAX_BLOCK_BYTES: Final = 64 * 2**20
"""Limit after decompression, held against the declared sizes before a byte is unpacked."""

_MAGIC: Final = b"RWF1"
_PREFIX: Final = struct.Struct("<4sI")
_MAX_HEADER_BYTES: Final = 2**20


class FrameHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All of a frame but its numbers."""

    attempt: int
    rank: int
    seq: int
    segment: int
    first_step: int
    num_steps: int
    num_columns: int
    layout_hash: str
    metric_names: tuple[str, ...]
    events: tuple[Event, ...]
    crc32: int
    """Of the block as it travels (compressed)."""
    codec: Literal["zstd-shuffle"] = "zstd-shuffle"
    histograms: tuple[Histograms, ...] = ()
    """Absent where there are none, as before there were any."""
    lost: int = 0

    @property
    def block_bytes(self) -> int:
        """Size of the block, unpacked."""
        return self.start_bytes + 4 * self.num_steps * self.num_columns

    @property
    def start_bytes(self) -> int:
        """Size of its beginning, unpacked: the times and the metrics."""
        return 8 * self.num_steps * (1 + len(self.metric_names))


_header_decoder = msgspec.msgpack.Decoder(FrameHeader)
_header_encoder = msgspec.msgpack.Encoder()


def encode_frame(frame: Frame) -> bytes:
    """A frame as bytes, ready to be stored or sent."""
    block = zstd.compress(
        shuffle(frame.times.astype("<f8"), np.ascontiguousarray(frame.metrics, "<f8"))
        + shuffle(np.ascontiguousarray(frame.stats, "<f4"))
    )
    header = FrameHeader(
        attempt=frame.attempt,
        rank=frame.rank,
        seq=frame.seq,
        segment=frame.segment,
        first_step=frame.first_step,
        num_steps=frame.num_steps,
        num_columns=frame.stats.shape[1] if frame.layout_hash else 0,
        layout_hash=frame.layout_hash,
        metric_names=frame.metric_names,
        events=frame.events,
        crc32=zlib.crc32(block),
        histograms=frame.histograms,
        lost=frame.lost,
    )
    return join_frame(header, block)


def decode_frame(body: bytes) -> Frame:
    """The frame in a body. Raises FrameError, FrameTooLargeError or ChecksumError."""
    header, block = split_frame(body)
    return unpack_block(header, block)


def decode_metrics(body: bytes) -> Frame:
    """The frame in a body without its stats: times and metrics stand first in the block, so that
    only its beginning is unpacked. Raises as `decode_frame` does."""
    header, block = split_frame(body)
    raw = _decompress_start(block, header.block_bytes, header.start_bytes)
    numbers = np.frombuffer(unshuffle(raw, 8), "<f8")
    return Frame(
        attempt=header.attempt,
        rank=header.rank,
        seq=header.seq,
        segment=header.segment,
        first_step=header.first_step,
        times=numbers[: header.num_steps],
        metric_names=header.metric_names,
        metrics=numbers[header.num_steps :].reshape(header.num_steps, len(header.metric_names)),
        events=header.events,
        histograms=header.histograms,
    )


def join_frame(header: FrameHeader, block: bytes) -> bytes:
    """A header and its compressed block as one body."""
    packed = _header_encoder.encode(header)
    return _PREFIX.pack(_MAGIC, len(packed)) + packed + block


def split_frame(body: bytes) -> tuple[FrameHeader, bytes]:
    """The header of a body and its block, still compressed, with its checksum verified.

    Raises FrameTooLargeError where a size, real or declared, is over its limit, ChecksumError
    where the block is not the one that was sent, FrameError for anything else.
    """
    if len(body) > MAX_BODY_BYTES:
        raise FrameTooLargeError(f"body: found {len(body)} bytes, wanted at most {MAX_BODY_BYTES}")
    header, block = _split(body)
    _check_header(header)
    found = zlib.crc32(block)
    if found != header.crc32:
        raise ChecksumError(f"crc32: found {found:#010x} in the block, wanted {header.crc32:#010x}")
    return header, block


def unpack_block(header: FrameHeader, block: bytes) -> Frame:
    """The frame of a header and its compressed block. Raises as `split_frame` does."""
    raw = memoryview(_decompress(block, header.block_bytes))
    num_steps, num_metrics = header.num_steps, len(header.metric_names)
    values_64 = num_steps * (1 + num_metrics)
    numbers_64 = np.frombuffer(unshuffle(raw[: 8 * values_64], 8), "<f8")
    numbers_32 = np.frombuffer(unshuffle(raw[8 * values_64 :], 4), "<f4")
    return Frame(
        attempt=header.attempt,
        rank=header.rank,
        seq=header.seq,
        segment=header.segment,
        first_step=header.first_step,
        times=numbers_64[:num_steps],
        metric_names=header.metric_names,
        metrics=numbers_64[num_steps:].reshape(num_steps, num_metrics),
        layout_hash=header.layout_hash,
        stats=numbers_32.reshape(num_steps, header.num_columns),
        events=header.events,
        histograms=header.histograms,
        lost=header.lost,
    )


def _split(body: bytes) -> tuple[FrameHeader, bytes]:
    if not body.startswith(_MAGIC):
        raise FrameError(f"body: found {body[:4]!r} at its start, wanted {_MAGIC!r}")
    if len(body) < _PREFIX.size:
        raise FrameError(f"body: found {len(body)} bytes, wanted at least {_PREFIX.size}")
    _, header_bytes = _PREFIX.unpack_from(body)
    if header_bytes > min(_MAX_HEADER_BYTES, len(body) - _PREFIX.size):
        raise FrameError(
            f"header: found a declared length of {header_bytes} bytes in a body of {len(body)}"
        )
    end = _PREFIX.size + header_bytes
    try:
        header = _header_decoder.decode(memoryview(body)[_PREFIX.size : end])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"header: {error}") from error
    return header, body[end:]


def _check_header(header: FrameHeader) -> None:
    if not 0 <= header.num_steps <= MAX_STEPS:
        raise FrameError(f"num_steps: found {header.num_steps}, wanted 0 to {MAX_STEPS}")
    if header.num_columns < 0 or len(header.metric_names) > MAX_METRICS:
        raise FrameError(
            f"columns: found {header.num_columns} stats and {len(header.metric_names)} metrics, "
            f"wanted no negative count and at most {MAX_METRICS} metrics"
        )
    if header.block_bytes > MAX_BLOCK_BYTES:
        raise FrameTooLargeError(
            f"block: found {header.block_bytes} bytes declared, wanted at most {MAX_BLOCK_BYTES}"
        )
    for event in header.events:
        check_event_time(event)
    if len(header.histograms) > MAX_HISTOGRAMS:
        raise FrameError(
            f"histograms: found {len(header.histograms)} parts, wanted at most {MAX_HISTOGRAMS}"
        )
    for histograms in header.histograms:
        histograms.check()


def _decompress(block: bytes, wanted_bytes: int) -> bytes:
    try:
        _check_declared(block, wanted_bytes)
        raw = zstd.decompress(block)
    except zstd.ZstdError as error:
        raise FrameError(f"block: found no zstd frame ({error})") from error
    if len(raw) != wanted_bytes:
        raise FrameError(f"block: found {len(raw)} bytes unpacked, wanted {wanted_bytes}")
    return raw


def _decompress_start(block: bytes, block_bytes: int, wanted_bytes: int) -> bytes:
    """The first bytes of a block whose whole size is known."""
    try:
        _check_declared(block, block_bytes)
        raw = zstd.decompress_start(block, wanted_bytes)
    except zstd.ZstdError as error:
        raise FrameError(f"block: found no zstd frame ({error})") from error
    if len(raw) != wanted_bytes:
        raise FrameError(f"block: found {len(raw)} bytes unpacked, wanted {wanted_bytes}")
    return raw


def _check_declared(block: bytes, wanted_bytes: int) -> None:
    declared = zstd.declared_bytes(block)
    if declared is None:
        raise FrameError(f"block: found no size declared by zstd, wanted {wanted_bytes} bytes")
    if declared != wanted_bytes:
        raise FrameTooLargeError(
            f"block: found {declared} bytes declared by zstd, wanted {wanted_bytes}"
        )


def shuffle(*arrays: NDArray[np.float64] | NDArray[np.float32]) -> bytes:
    """Numbers of one type as bytes: all first bytes, then all second bytes, and so on."""
    octets = np.concatenate([array.reshape(-1) for array in arrays]).view(np.uint8)
    return octets.reshape(-1, arrays[0].dtype.itemsize).T.tobytes()


def unshuffle(octets: bytes | memoryview, item_bytes: int) -> bytes:
    """The bytes of numbers one after the other again."""
    planes = np.frombuffer(octets, np.uint8).reshape(item_bytes, -1)
    return planes.T.tobytes()
