"""The token of an attempt, which tests make from its run and number: so whoever sends for it can
prove that, in whatever process."""

import hashlib
import re
from typing import Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from runwatch.codec import split_frame
from runwatch.errors import FrameError
from runwatch.messages import ATTEMPT_TOKEN_HEADER
from runwatch.ulids import ulid

_ABOUT_ATTEMPT: Final = re.compile(
    r"/runs/([^/]+)/(?:frames|heartbeat|layouts/.+|commands/next|attempts/(\d+)/close)"
)


class _Addressed(msgspec.Struct):
    attempt: int = 1


def token_of(run_id: str, attempt: int = 1) -> str:
    """A ULID, which the version before the header wants (`tests/faults/test_two_versions.py`)."""
    return ulid(0, hashlib.sha256(f"{run_id}/{attempt}".encode()).digest()[:10])


def proof(run_id: str, attempt: int = 1) -> dict[str, str]:
    """The header with which a request proves to come from an attempt."""
    return {ATTEMPT_TOKEN_HEADER: token_of(run_id, attempt)}


def proof_for(path: str, body: bytes | None = None) -> dict[str, str]:
    """That of a trainer's request (below /api/v1), whose attempt is the one that it is about;
    nothing for any other request."""
    parts = urlsplit(path)
    found = _ABOUT_ATTEMPT.fullmatch(parts.path)
    if found is None:
        return {}
    named = found[2] or parse_qs(parts.query).get("attempt", [None])[0]
    return proof(found[1], _attempt_in(body) if named is None else int(named))


def _attempt_in(body: bytes | None) -> int:
    try:
        return split_frame(body or b"")[0].attempt
    except FrameError:
        pass
    try:
        return msgspec.json.decode(body or b"{}", type=_Addressed).attempt
    except (msgspec.DecodeError, RecursionError):
        return 1
