"""Identifiers that sort by the time of their making (ULID, github.com/ulid/spec)."""

from typing import Final

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: no I, L, O, U
LENGTH: Final = 26


def ulid(time_ms: int, randomness: bytes) -> str:
    """A ULID of a Unix time in milliseconds and 10 random bytes."""
    if len(randomness) != 10:
        raise ValueError(f"found {len(randomness)} random bytes, wanted 10")
    number = (time_ms << 80) | int.from_bytes(randomness, "big")
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))


def is_ulid(text: str) -> bool:
    """Whether a text is a ULID in its canonical, upper-case form."""
    return len(text) == LENGTH and text[0] <= "7" and all(letter in _ALPHABET for letter in text)


def time_of(text: str) -> float:
    """When a ULID was made, in Unix seconds."""
    number = 0
    for letter in text[:10]:
        number = number << 5 | _ALPHABET.index(letter)
    return number / 1000


def following(text: str) -> str:
    """The next ULID in order after one."""
    kept = text.rstrip(_ALPHABET[-1])
    digit = _ALPHABET.index(kept[-1])
    return kept[:-1] + _ALPHABET[digit + 1] + _ALPHABET[0] * (LENGTH - len(kept))
