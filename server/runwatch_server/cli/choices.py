"""A word that is none of those wanted is refused as everything else is: found this, wanted that."""

import re
from typing import Final

_NONE_OF: Final = re.compile(
    r"(?:Value error, )?'(?P<found>.*)' is not one of (?P<wanted>'[^']*'(?:, '[^']*')*)\.?",
    re.DOTALL,
)
"""The words of the library that reads the command line."""


def in_our_words(text: str) -> str:
    """What the library says of an argument; other texts stay as they are."""
    none_of = _NONE_OF.fullmatch(text)
    if none_of is None:
        return text
    *first, last = (word.strip("'") for word in none_of["wanted"].split(", "))
    wanted = f"{', '.join(first)} or {last}" if first else last
    return f"found {none_of['found']!r}, wanted {wanted}"
