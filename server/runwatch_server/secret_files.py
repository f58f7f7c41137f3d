"""Files that hold keys, and folders of what runs told: for nobody else to read; a file of keys is
there whole or not at all."""

import os
import secrets
from pathlib import Path
from typing import Final

OWNER: Final = 0o600
OWNER_AND_GROUP: Final = 0o640
_FOLDER: Final = 0o700


def make_folder(path: Path) -> None:
    """For us alone, with the folders above it that are missing; one that is there stays as it is.
    Raises OSError."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing or [path]):
        folder.mkdir(_FOLDER, parents=True, exist_ok=True)


def make_empty(path: Path) -> None:
    """A file that is filled by who takes no mode, such as SQLite. Raises OSError where one is."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER))


def write_secret(path: Path, content: bytes, mode: int = OWNER) -> None:
    """In the place of what was there, on the disk; no others can read it even for an instant.

    Raises OSError; what was there is then still there.
    """
    written = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask takes away
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
