"""Identifiers sort by time and have one form."""

import pytest

from runwatch.ulids import following, is_ulid, time_of, ulid


def test_the_published_example_of_a_time() -> None:
    assert ulid(1469918176385, bytes(10)).startswith("01ARYZ6S41")


def test_when_one_was_made_is_read_from_it() -> None:
    assert time_of(ulid(1469918176385, b"\xff" * 10)) == 1469918176.385


def test_later_sorts_after_earlier() -> None:
    assert ulid(1_000, b"\xff" * 10) < ulid(1_001, bytes(10))


def test_the_next_in_order_follows() -> None:
    assert following(ulid(7, bytes(10))) == ulid(7, bytes([*bytes(9), 1]))
    assert following(ulid(7, b"\xff" * 10)) == ulid(8, bytes(10))


@pytest.mark.parametrize("text", ["", "01ARYZ6S41", "8" * 26, "01aryz6s41" + "0" * 16, "I" * 26])
def test_other_texts_are_no_ulid(text: str) -> None:
    assert not is_ulid(text)


def test_too_little_randomness_is_refused() -> None:
    with pytest.raises(ValueError, match="found 9 random bytes, wanted 10"):
        ulid(0, bytes(9))
