"""Refuses zero bytes in texts, wherever they come in and whatever the database.

PostgreSQL cannot store them and SQLite can; what is accepted must not depend on which one is used.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from runwatch_server.errors import UnprocessableError

_ESCAPED: Final = rb"\u0000"


def check_json_texts(place: str, body: bytes) -> None:
    """Raises UnprocessableError for a JSON body with a zero byte in one of its texts.

    JSON can hold one only as an escape, so one search clears nearly every body. An escaped
    backslash before `u0000` looks the same, so only a hit is decoded. A body that is no JSON is
    left to the code that decodes it later.
    """
    if _ESCAPED not in body:
        return
    try:
        document: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    check_texts(place, document)


def check_texts(place: str, value: object) -> None:
    """Raises UnprocessableError for a zero byte in any text of a value of JSON's types."""
    if _has_zero_byte(value):
        raise UnprocessableError(
            "zero_byte", f"{place}: found a zero byte in a text, wanted none: it cannot be stored"
        )


def _has_zero_byte(value: object) -> bool:
    """Without recursion, since the sender chooses how deeply a document is nested."""
    waiting: list[object] = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            if "\0" in one:
                return True
        elif isinstance(one, dict):
            waiting += one.keys()
            waiting += one.values()
        elif isinstance(one, Iterable):
            waiting += one
    return False
