"""Zstandard, whichever library this Python has it from."""

import pytest

from runwatch import zstd

CONTENT = b"exponents compress, mantissas do not disturb them" * 100


def test_what_was_packed_unpacks_to_the_same() -> None:
    packed = zstd.compress(CONTENT)

    assert len(packed) < len(CONTENT) / 20
    assert packed.startswith(zstd.MAGIC)
    assert zstd.declared_bytes(packed) == len(CONTENT)
    assert zstd.decompress(packed) == zstd.unpacker()(packed) == CONTENT
    assert zstd.decompress(zstd.compress(b"")) == b""


def test_only_the_beginning_is_unpacked_where_it_is_enough() -> None:
    packed = zstd.compress(CONTENT)

    assert zstd.decompress_start(packed, 9) == CONTENT[:9]
    assert zstd.decompress_start(packed, 0) == b""
    assert zstd.decompress_start(packed, 10**6) == CONTENT


@pytest.mark.parametrize(
    "broken",
    [b"", b"no zstd", zstd.compress(CONTENT)[:-1], zstd.compress(CONTENT)[:5]],
    ids=["empty", "another format", "without its last byte", "only a beginning"],
)
def test_what_is_no_whole_frame_is_an_error(broken: bytes) -> None:
    with pytest.raises(zstd.ZstdError):
        zstd.decompress(broken)


def test_a_frame_without_a_declared_size_is_an_error() -> None:
    undeclared = bytes.fromhex("28b52ffd 0000 450000 10 00 00 01003b0116")  # 56 zeros

    assert zstd.declared_bytes(undeclared) is None
    with pytest.raises(zstd.ZstdError):
        zstd.decompress(undeclared)


@pytest.mark.parametrize("declared", [1, 2**17, 2**20 + 1])
def test_a_frame_that_holds_another_size_than_it_declares_is_an_error(declared: int) -> None:
    repeated = [(2**17 << 3 | 1 << 1 | is_last).to_bytes(3, "little") + b"\0" for is_last in (0, 1)]
    begin = zstd.MAGIC + b"\xc0\x38" + declared.to_bytes(8, "little")

    with pytest.raises(zstd.ZstdError):
        zstd.decompress(begin + repeated[0] * 7 + repeated[1])
