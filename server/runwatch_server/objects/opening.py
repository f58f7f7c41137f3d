"""Opens the configured object store: a folder, a bucket, or none."""

import importlib
from pathlib import Path
from urllib.parse import unquote, urlsplit

from runwatch.extras import pip_install
from runwatch_server.errors import SettingsError
from runwatch_server.objects.folder import FolderObjects
from runwatch_server.objects.store import ObjectStore


def make_objects(url: str | None) -> ObjectStore | None:
    """None without a URL: then everything stays in the database, and a backup of it is complete.

    Raises SettingsError for a URL that cannot be used.
    """
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return FolderObjects(Path(unquote(parts.path)))
    if parts.scheme != "s3" or not parts.netloc:
        raise SettingsError(
            f"objects_url: found {url!r}, wanted s3://bucket/prefix or file:///a/folder"
        )
    try:  # imported by name, since obstore may not be installed
        module = importlib.import_module("runwatch_server.objects.bucket")
    except ModuleNotFoundError as error:
        raise SettingsError(
            "objects_url: found a bucket, but no obstore to reach it with; "
            f"install it with: {pip_install('objects')}"
        ) from error
    try:
        store: ObjectStore = module.BucketObjects(url)
    except ValueError as error:
        raise SettingsError(f"objects_url: found {url!r} ({error})") from error
    return store
