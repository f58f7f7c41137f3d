"""Files that hold keys: there whole or not at all, and for nobody else to read."""

import os
import secrets
from pathlib import Path
from typing import Final

OWNER: Final = 0o600
OWNER_AND_GROUP: Final = 0o640


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
