"""The service's signing keys, kept in a file and never in the database, and secrets derived from
them.

Write access to the database is thus not enough to sign: the secrets of runs are derived when they
are needed and stored nowhere.
"""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from runwatch_server.errors import SettingsError
from runwatch_server.secret_files import write_secret
from runwatch_server.settings import Settings

SECRET_FILE: Final = "secret"
"""File in the data directory, used with SQLite."""

_MIN_CHARACTERS: Final = 32
_FINGERPRINT_BYTES: Final = 8


class MissingKeyError(Exception):
    """The service does not have the key that was used to sign."""


class KeyRing:
    """Signing keys by their fingerprints.

    The first one signs for new attempts; each signs for those that began under it. An empty ring
    signs nothing.
    """

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._keys = {_fingerprint(key): key for key in keys}

    @property
    def current(self) -> str | None:
        """Fingerprint of the key for new attempts; None if nothing is signed."""
        return next(iter(self._keys), None)

    def __contains__(self, fingerprint: object) -> bool:
        return fingerprint in self._keys

    def derive(self, fingerprint: str, *purpose: str) -> bytes:
        """32 bytes that only holders of the key can compute, bound to the purpose.

        One block of HKDF-SHA256 (RFC 5869). Raises MissingKeyError.
        """
        key = self._keys.get(fingerprint)
        if key is None:
            raise MissingKeyError(fingerprint)
        extracted = hmac.new(b"runwatch", key, hashlib.sha256).digest()
        info = "\0".join(purpose).encode()
        return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def open_key_ring(settings: Settings, *, is_shared: bool) -> KeyRing:
    """The configured keys; without any, a service on SQLite creates one of its own.

    All replicas must be given the same keys: on a shared database, a service without any signs
    nothing. Raises SettingsError.
    """
    if settings.secret:
        return KeyRing(_keys("secret", settings.secret.split(",")))
    if settings.secret_file is not None:
        return KeyRing(_read(settings.secret_file))
    if is_shared:
        return KeyRing()
    own = settings.data_dir / SECRET_FILE
    if not own.exists():
        write_secret(own, f"{secrets.token_hex(32)}\n".encode())
    return KeyRing(_read(own))


def _read(path: Path) -> list[bytes]:
    try:
        lines = path.read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not ASCII text"
        raise SettingsError(f"secret_file: found {path} ({why}), wanted a file of keys") from error
    return _keys(f"secret_file {path}", lines)


def _keys(place: str, texts: Sequence[str]) -> list[bytes]:
    keys = [text.strip().encode() for text in texts if text.strip()]
    shortest = min(map(len, keys), default=0)
    if shortest < _MIN_CHARACTERS:
        raise SettingsError(
            f"{place}: found {len(keys)} keys, the shortest of {shortest} characters; wanted one "
            f"or more, of at least {_MIN_CHARACTERS} random characters each (openssl rand -hex 32)"
        )
    return keys


def _fingerprint(key: bytes) -> str:
    """Identifies a key without revealing anything about it."""
    mark = hmac.new(key, b"runwatch fingerprint", hashlib.sha256).digest()
    return mark[:_FINGERPRINT_BYTES].hex()
