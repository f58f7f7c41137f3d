"""Names that people chose, where only so much of one fits: cut, and still told apart."""

import hashlib
from typing import Final

_DIGITS: Final = 8


def cut_name(name: str, limit: int) -> str:
    """The name in at most `limit` characters. One that is longer ends in a digest of the whole:
    names that begin alike stay two, and the same name is cut alike everywhere and at all times."""
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]
    return f"{name[: limit - _DIGITS - 1]}…{digest}"
