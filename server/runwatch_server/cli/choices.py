"""Rewrites the parser's messages about arguments in our form: found this, wanted that."""

import re
from typing import Final

_NONE_OF: Final = re.compile(
    r"(?:Value error, )?'(?P<found>.*)' is not one of (?P<wanted>'[^']*'(?:, '[^']*')*)\.?",
    re.DOTALL,
)
"""The wording of the library that parses the command line."""
_BOUND: Final = re.compile(r"Input should be (greater|less) than or equal to (\S+)")
_KINDS: Final = {
    "Input should be a valid integer": "wanted a whole number",
    "Input should be a valid number": "wanted a number",
}


def in_our_words(text: str) -> str:
    """The library's message about an argument in our form; other texts stay as they are."""
    if none_of := _NONE_OF.fullmatch(text):
        *first, last = (word.strip("'") for word in none_of["wanted"].split(", "))
        wanted = f"{', '.join(first)} or {last}" if first else last
        return f"found {none_of['found']!r}, wanted {wanted}"
    if bound := _BOUND.fullmatch(text):
        return f"wanted {bound[2]} or {'more' if bound[1] == 'greater' else 'less'}"
    return next((ours for theirs, ours in _KINDS.items() if text.startswith(theirs)), text)
