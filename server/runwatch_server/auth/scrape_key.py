"""Writes a key to a file for a Prometheus that starts together with the service.

So nobody has to copy a key by hand, and there is no default key.
"""

import asyncio
import logging
import os
from pathlib import Path

from runwatch_server.auth.keys import KeyScope
from runwatch_server.auth.service import Keys
from runwatch_server.errors import SettingsError, UnauthenticatedError
from runwatch_server.secret_files import OWNER_AND_GROUP, write_secret

log = logging.getLogger(__name__)


def check_scrape_key_file(path: Path) -> None:
    """Raises SettingsError if the file cannot be written; to be called before a key is created."""
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise SettingsError(
            f"scrape_key_file: found {path}, wanted a file in a folder that can be written"
        )


async def keep_scrape_key(keys: Keys, path: Path) -> None:
    """Puts a key with the scope `read` into the file, unless the one there is still valid."""
    if await _still_holds(keys, path):
        return
    new = await keys.create(
        "prometheus", scopes={KeyScope.READ}, project=None, expires_at=None, created_by="start"
    )
    # The service writes; Prometheus reads as a member of its group.
    await asyncio.to_thread(write_secret, path, new.text.encode(), OWNER_AND_GROUP)
    log.info("a key for Prometheus, %s, is in %s", new.key.id, path)


async def _still_holds(keys: Keys, path: Path) -> bool:
    try:
        text = await asyncio.to_thread(path.read_text, "utf-8")
        principal = await keys.authenticate(text.strip())
    except (OSError, UnicodeDecodeError, UnauthenticatedError):
        return False
    return principal.allows(KeyScope.READ)
