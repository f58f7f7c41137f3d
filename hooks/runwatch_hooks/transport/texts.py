"""Texts that UTF-8 cannot carry or the service cannot store, made such that they can be sent.

A file name with an odd byte holds half a surrogate pair; in the text of an exception it gets here.
A zero byte, which PostgreSQL cannot hold, would have the whole frame or run refused.
"""

from typing import Any, Final, cast

import msgspec

from runwatch.commands import Receipt
from runwatch.frames import Event

UNENCODABLE: Final = (ValueError, TypeError, OverflowError)
"""What an encoder raises. It must not end the sender's turn: nothing would be said any more."""


def sendable(text: str) -> str:
    """The text, with a question mark for what has no encoding, and for a zero byte."""
    return text.encode(errors="replace").replace(b"\0", b"?").decode()


def sendable_document(value: Any) -> Any:
    """The same for every text in a value of JSON's types."""
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, list | tuple):
        return [sendable_document(one) for one in cast("list[object]", value)]
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return {sendable_document(name): sendable_document(one) for name, one in items}
    return value


def sendable_event(event: Event) -> Event:
    detail = sendable_document(event.detail)
    return msgspec.structs.replace(event, kind=sendable(event.kind), detail=detail)


def sendable_receipt(receipt: Receipt) -> Receipt:
    return msgspec.structs.replace(receipt, detail=sendable_document(receipt.detail))
