"""An API key as people give it: what cannot be one is told without a word of it."""

import re
from typing import Final

from runwatch.addresses import host_of, is_address

_NO_KEY_HAS: Final = re.compile(r"[^!-~]")
"""Nor may a header have it, and the HTTP libraries quote the whole key in their complaint."""
_WANTED: Final = "wanted a key: letters, digits, '-' and '_'"


def trimmed(text: str | None) -> str:
    """A secret that a file or a cluster keeps often ends in a newline, which no header may have."""
    return (text or "").strip()


def fault_of_key(text: str) -> str:
    """Why a text is no key; empty where it may be one. Nothing of it is repeated but a character
    that no key has, or the scheme and host of an address in its place."""
    if is_address(text):
        return f"found the address {host_of(text)}, {_WANTED}"
    if odd := _NO_KEY_HAS.search(text):
        return f"found {odd.group()!r} at place {odd.start() + 1} of {len(text)}, {_WANTED}"
    return ""
