"""Shortens names that people chose so that they fit a limit and still differ."""

import hashlib
from typing import Final

_DIGITS: Final = 8


def cut_name(name: str, limit: int) -> str:
    """The name in at most `limit` characters.

    A longer one is cut and ends in a digest of the whole name, so that two names with the same
    beginning stay different, and one name is always shortened in the same way.
    """
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]
    return f"{name[: limit - _DIGITS - 1]}…{digest}"
