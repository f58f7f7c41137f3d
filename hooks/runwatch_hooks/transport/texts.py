"""Makes any text encodable as UTF-8 and storable by the service, and any number a JSON one.

A file name with an invalid byte contains a lone surrogate, and may occur in the text of an
exception. A zero byte cannot be stored by PostgreSQL, so the whole frame or run would be refused.
"""

from typing import Any, Final, cast

import msgspec

from runwatch.commands import Receipt
from runwatch.frames import Event
from runwatch.nonfinite import to_json

UNENCODABLE: Final = (ValueError, TypeError, OverflowError)
"""What encoders raise. To be caught, or the sender would never get past the item."""


def sendable(text: str) -> str:
    """The text, with question marks for lone surrogates and zero bytes."""
    return text.encode(errors="replace").replace(b"\0", b"?").decode()


def sendable_document(value: Any) -> Any:
    """Like `sendable`, for every text in a value of JSON types. NaN and infinities become "NaN",
    "+Inf" and "-Inf": an encoder of JSON would make null of them, which is 'not recorded'."""
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, float):
        return to_json(value)
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
