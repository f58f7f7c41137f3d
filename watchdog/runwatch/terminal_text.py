"""Texts of others as a terminal may be given them: to be read, and never obeyed.

A run's name, a layer's, a log line or an event's words come from whoever may send a run. An escape
sequence among them would recolour, retitle or overwrite what an operator reads, or paste for them.
"""

import re
from typing import Final

_COMMANDS: Final = re.compile(
    "["
    "\0-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1 but newline and tab: among them ESC, and CSI in one
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what turns the order of what is read
    "\u2028\u2029"  # lines of their own
    "\ud800-\udfff"  # what no encoding holds: printing it would raise
    "]"
)


def readable(text: str) -> str:
    """The text with `?` for each character that commands a terminal; newlines and tabs stay."""
    return _COMMANDS.sub("?", text)


def readable_line(text: str) -> str:
    """Likewise, and without newlines: a text that must not pass for two lines of a log."""
    return readable(text.replace("\n", "?"))


def encodable(text: str) -> str:
    """The text with `?` for what no encoding holds, as a file's name that is no UTF-8 has it."""
    return text.encode("utf-8", "replace").decode()


def readable_json(document: str) -> str:
    """A document of JSON in which such characters are escaped: the same values, for programs."""
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", document)
