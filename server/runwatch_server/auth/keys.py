"""API keys as text and as values. No I/O.

    runwatch_<8 letters: id>_<43 letters: secret><6 letters: checksum>

The checksum tells a mistyped key from an unknown one without a database query, and lets scanners
for leaked secrets be sure. A secret has 256 random bits and cannot be guessed, so a single round of
SHA-256 is enough to store it.
"""

import base64
import hashlib
import hmac
import re
import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from runwatch_server.errors import ForbiddenError, UnauthenticatedError

_KEY: Final = re.compile(r"runwatch_([a-z2-7]{8})_([A-Za-z0-9_-]{43})([0-9a-f]{6})")


class KeyScope(StrEnum):
    """What a key may be used for; `admin` includes the others."""

    INGEST = "ingest"
    """For trainers: opens runs and attempts, sends frames, receives commands."""
    READ = "read"
    CONTROL = "control"
    """Acknowledges alerts, approves and gives commands, changes runs."""
    ADMIN = "admin"
    """Manages keys and rules, deletes runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key as it is stored."""

    id: str
    name: str
    secret_hash: str
    scopes: frozenset[KeyScope]
    project: str | None
    """None: every project."""
    created_at: float
    created_by: str
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None

    def check(self, secret: str, now: float) -> None:
        """Raises UnauthenticatedError unless the secret is this key's and the key is in force."""
        if not hmac.compare_digest(hash_secret(secret), self.secret_hash):
            raise UnauthenticatedError("unknown_key", "The API key is not known here.")
        self.check_in_force(now)

    def check_in_force(self, now: float) -> None:
        """Raises UnauthenticatedError if the key was revoked or has expired."""
        if self.revoked_at is not None:
            raise UnauthenticatedError("revoked_key", f"The API key {self.id} was revoked.")
        if self.expires_at is not None and not now < self.expires_at:
            raise UnauthenticatedError("expired_key", f"The API key {self.id} has expired.")


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller: the key of a request, once it is checked."""

    key_id: str
    name: str
    scopes: frozenset[KeyScope]
    project: str | None

    def allows(self, scope: KeyScope) -> bool:
        return scope in self.scopes or KeyScope.ADMIN in self.scopes

    def check_scope(self, scope: KeyScope) -> None:
        """Raises ForbiddenError."""
        if not self.allows(scope):
            found = ", ".join(sorted(self.scopes))
            raise ForbiddenError(
                "missing_scope", f"The API key has the scopes {found}; this needs {scope}."
            )

    def check_project(self, project: str) -> None:
        """Raises ForbiddenError if the key is bound to another project."""
        if self.project is not None and self.project != project:
            raise ForbiddenError(
                "foreign_project", f"The API key is bound to the project {self.project!r}."
            )

    @property
    def actor(self) -> str:
        """The caller's name in the audit."""
        return f"key:{self.key_id}"


def format_key(key_id: str, secret: str) -> str:
    return f"runwatch_{key_id}_{secret}{_checksum(key_id, secret)}"


def parse_key(text: str) -> tuple[str, str]:
    """Id and secret of a key's text. Raises UnauthenticatedError."""
    match = _KEY.fullmatch(text)
    if match is None or match[3] != _checksum(match[1], match[2]):
        raise UnauthenticatedError(
            "malformed_key", "The API key is mistyped or truncated: its checksum is wrong."
        )
    return match[1], match[2]


def new_key_id(randomness: bytes) -> str:
    """An id of 8 letters from 5 random bytes."""
    return base64.b32encode(randomness).decode().lower()


def hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _checksum(key_id: str, secret: str) -> str:
    return f"{zlib.crc32(f'{key_id}_{secret}'.encode()) & 0xFFFFFF:06x}"
