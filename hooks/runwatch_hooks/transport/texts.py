"""Texts that UTF-8 cannot carry, made such that it can.

A file name with an odd byte holds half a surrogate pair; in the text of an exception it gets here.
"""

import msgspec

from runwatch.frames import Event, Scalar


def sendable(text: str) -> str:
    """The text, with a question mark for what has no encoding."""
    return text.encode(errors="replace").decode()


def sendable_event(event: Event) -> Event:
    detail = {sendable(name): _sendable_value(value) for name, value in event.detail.items()}
    return msgspec.structs.replace(event, kind=sendable(event.kind), detail=detail)


def _sendable_value(value: Scalar | list[str]) -> Scalar | list[str]:
    if isinstance(value, list):
        return [sendable(one) for one in value]
    return sendable(value) if isinstance(value, str) else value
