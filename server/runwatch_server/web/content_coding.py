"""Refuses bodies with a Content-Encoding.

Nothing here decompresses one, so the client would only be told of broken JSON. Frames have their
own compression, inside their format.
"""

from typing import Final

from fastapi import Request

from runwatch_server.errors import UnsupportedTypeError

_AS_IT_IS: Final = "identity"
_WITH_BODY: Final = ("POST", "PUT", "PATCH")


async def plain_bodies_only(request: Request) -> None:
    """App-wide dependency. Raises UnsupportedTypeError."""
    coding = request.headers.get("Content-Encoding", _AS_IT_IS)
    if request.method in _WITH_BODY and coding.lower() != _AS_IT_IS:
        raise UnsupportedTypeError(
            "unsupported_coding", f"Content-Encoding: found {coding[:80]!r}, wanted none"
        )
