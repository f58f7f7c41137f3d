"""Zstandard from the standard library, which has it since Python 3.14; before, from `zstandard`.

Frames say how large their content is, and nothing is unpacked beyond that, whatever a frame holds.
"""

import sys
from collections.abc import Callable
from typing import Final

__all__ = [
    "MAGIC",
    "ZstdError",
    "compress",
    "declared_bytes",
    "decompress",
    "decompress_start",
    "unpacker",
]

MAGIC: Final = b"\x28\xb5\x2f\xfd"
"""What each frame begins with."""

_LEVEL: Final = 3


if sys.version_info >= (3, 14):
    from compression import zstd as _zstd
    from compression.zstd import ZstdError

    def compress(data: bytes, level: int = _LEVEL) -> bytes:
        """One frame."""
        return _zstd.compress(data, level)

    def decompress(data: bytes) -> bytes:
        """The content of the first frame. Raises ZstdError, also where no size is declared."""
        wanted = declared_bytes(data)
        if wanted is None:
            raise ZstdError("the frame does not declare its size")
        unpacker = _zstd.ZstdDecompressor()
        raw = unpacker.decompress(data, max_length=wanted + 1)  # one more, to see the frame's end
        if len(raw) != wanted or not unpacker.eof:
            raise ZstdError(f"found {len(raw)} bytes or no end, wanted the {wanted} declared")
        return raw

    def unpacker() -> Callable[[bytes], bytes]:
        """A `decompress` for many frames, in one thread."""
        return decompress

    def decompress_start(data: bytes, num_bytes: int) -> bytes:
        """The first bytes of the content; fewer where there are no more. Raises ZstdError."""
        if num_bytes == 0:
            return b""
        return _zstd.ZstdDecompressor().decompress(data, max_length=num_bytes)

    def declared_bytes(data: bytes) -> int | None:
        """The size of the content as the frame declares it, if it does. Raises ZstdError."""
        return _zstd.get_frame_info(data).decompressed_size

else:
    import zstandard
    from zstandard import ZstdError

    def compress(data: bytes, level: int = _LEVEL) -> bytes:
        """One frame."""
        return zstandard.ZstdCompressor(level=level).compress(data)

    def decompress(data: bytes) -> bytes:
        """The content of the first frame. Raises ZstdError, also where no size is declared."""
        return zstandard.ZstdDecompressor().decompress(data)

    def unpacker() -> Callable[[bytes], bytes]:
        """A `decompress` for many frames, in one thread: begins a small one in a third of the
        time."""
        return zstandard.ZstdDecompressor().decompress

    def decompress_start(data: bytes, num_bytes: int) -> bytes:
        """The first bytes of the content; fewer where there are no more. Raises ZstdError."""
        with zstandard.ZstdDecompressor().stream_reader(data) as reader:
            return reader.read(num_bytes)

    def declared_bytes(data: bytes) -> int | None:
        """The size of the content as the frame declares it, if it does. Raises ZstdError."""
        declared = zstandard.get_frame_parameters(data).content_size
        return None if declared == zstandard.CONTENTSIZE_UNKNOWN else declared
