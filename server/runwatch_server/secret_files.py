"""Files of keys and folders of runs' data, which only their owner can read.

A file of keys is written whole or not at all.
"""

import os
import secrets
from pathlib import Path
from typing import Final

OWNER: Final = 0o600
OWNER_AND_GROUP: Final = 0o640
ADMIN_KEY_FILE: Final = "admin-key"
"""File in the data directory with the admin key of a first start that had no terminal to show it
on: a log may be kept for longer, and read by more people, than anybody thinks of."""
_FOLDER: Final = 0o700


def make_folder(path: Path) -> None:
    """Creates a folder for its owner alone, with missing parents; leaves an existing one as it is.
    Raises OSError."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing or [path]):
        folder.mkdir(_FOLDER, parents=True, exist_ok=True)


def make_empty(path: Path) -> None:
    """Creates a private empty file for programs that set no mode themselves, such as SQLite.
    Raises OSError if it exists."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER))


def make_private(path: Path) -> None:
    """Creates an empty file for its owner alone; takes an existing one away from all others.
    Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, OWNER)
    try:
        os.fchmod(descriptor, OWNER)
    finally:
        os.close(descriptor)


def admin_key_in(data_dir: Path) -> str | None:
    """The admin key that a start without a terminal has left; None if there is none to be read."""
    try:
        return (data_dir / ADMIN_KEY_FILE).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None


def write_secret(path: Path, content: bytes, mode: int = OWNER) -> None:
    """Replaces the file and syncs it to disk; at no instant can others read it.

    Raises OSError; the old file is then still there.
    """
    written = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask is
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
